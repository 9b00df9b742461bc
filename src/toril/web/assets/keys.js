'use strict';

/* == Search, and the keyboard */
let known;
const names = () => (known ||= api.get('queues').then(found => found.items.map(q => q.name)));
const pages = () =>
  $$('.side li a').map(a => ({
    key: a.textContent[0].toLowerCase(),
    name: a.childNodes[1].textContent.trim(),
    href: a.href,
    icon: a.firstChild.className.slice(2),
  }));
function palette() {
  const input = h('input', {
    type: 'text',
    role: 'combobox',
    'aria-expanded': 'true',
    'aria-controls': 'pal',
    'aria-label': 'Search',
    placeholder: 'Search pages, queues and jobs',
    autocomplete: 'off',
    spellcheck: 'false',
  });
  const list = h('ul', { id: 'pal', role: 'listbox', 'aria-label': 'Results' });
  const all = pages().map(p => [p.icon, p.name, p.href, 'g ' + p.key]);
  let at = 0,
    hits = [];
  names().then(
    found => {
      all.push(...found.map(q => ['wait', q, to('queues', q), 'queue']));
      draw();
    },
    () => {},
  );
  const draw = () => {
    const q = input.value.trim().toLowerCase();
    hits = all.filter(x => x[1].toLowerCase().includes(q)).slice(0, 9);
    if (q)
      hits.push([
        'search',
        `Search for ${input.value.trim()}`,
        site.pathname + 'find?q=' + encodeURIComponent(input.value.trim()),
        'all jobs',
      ]);
    at = Math.max(0, Math.min(at, hits.length - 1));
    list.replaceChildren(
      ...hits.map((x, i) =>
        h(
          'li',
          {
            role: 'option',
            id: 'pal' + i,
            'aria-selected': String(i === at),
            onclick: () => {
              location.href = x[2];
            },
            onpointermove: () => {
              if (at !== i) {
                at = i;
                mark();
              }
            },
          },
          icon(x[0]),
          x[1],
          h('small', {}, x[3]),
        ),
      ),
    );
    mark();
  };
  const mark = () => {
    [...list.children].forEach((li, i) => li.setAttribute('aria-selected', String(i === at)));
    input.setAttribute('aria-activedescendant', 'pal' + at);
    list.children[at]?.scrollIntoView({ block: 'nearest' });
  };
  input.addEventListener('input', () => {
    at = 0;
    draw();
  });
  input.addEventListener('keydown', e => {
    if (e.key === 'ArrowDown') at = (at + 1) % hits.length;
    else if (e.key === 'ArrowUp') at = (at + hits.length - 1) % hits.length;
    else if (e.key === 'Enter' && hits[at]) {
      location.href = hits[at][2];
      return;
    } else return;
    e.preventDefault();
    mark();
  });
  dialog(
    [h('h2', { id: 'dlg-t', class: 'vh' }, 'Search'), h('label', { class: 'field' }, icon('search'), input), list],
    'palette',
  );
  draw();
  input.focus();
}
function help() {
  const keys = [
    ['Search', '/'],
    ['Overview, dead letters', 'g o, g d'],
    ['Flows, schedules', 'g f, g s'],
    ['Groups, breakers', 'g g, g b'],
    ['Workers, audit log', 'g w, g a'],
    ['People', 'g p'],
    ['Next and previous row', 'j, k'],
    ['Open the row', 'Enter'],
    ['Select the row', 'x'],
    ['Retry or replay the row', 'r'],
    ['Chart range', '1 to 5'],
    ['Pause live updates', 'p'],
    ['Move along a chart', '← →'],
    ['Show this help', '?'],
  ];
  const off = h('input', { type: 'checkbox', onchange: e => store.set('keys', e.target.checked ? 'on' : 'off') });
  off.checked = store.get('keys') !== 'off';
  dialog(
    h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'dlg-t' }, 'Keyboard shortcuts'),
      h(
        'dl',
        { class: 'keys' },
        keys.map(([t, k]) =>
          h(
            'div',
            {},
            h('dt', {}, t),
            h(
              'dd',
              {},
              k.split(', ').flatMap((x, i) => [i ? ' ' : '', h('kbd', {}, x)]),
            ),
          ),
        ),
      ),
      h('label', {}, off, 'Single-key shortcuts'),
      h('footer', {}, h('button', { class: 'btn primary', value: 'ok' }, 'Close')),
    ),
  );
}
let chord = '';
function keyboard(e) {
  if ((e.metaKey || e.ctrlKey) && e.key.toLowerCase() === 'k') {
    e.preventDefault();
    return $('dialog[open]') || palette();
  }
  if (
    e.metaKey ||
    e.ctrlKey ||
    e.altKey ||
    store.get('keys') === 'off' ||
    $('dialog[open]') ||
    (/^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.type !== 'checkbox')
  )
    return;
  const rows = $$('main [data-list] tbody tr:not(.more)'),
    cur = rows.findIndex(r => r.classList.contains('cur'));
  const move = by => {
    const to = rows[Math.max(0, Math.min(rows.length - 1, cur + by))];
    if (!to) return;
    rows[cur]?.classList.remove('cur');
    to.classList.add('cur');
    to.scrollIntoView({ block: 'nearest' });
    (to.querySelector('a') || to).focus({ preventScroll: true });
  };
  const key = chord + e.key;
  chord = '';
  const page = key.length === 2 && key[0] === 'g' && pages().find(p => p.key === key[1]);
  if (page) location.href = page.href;
  else if (key === 'g') {
    chord = 'g';
    setTimeout(() => {
      chord = '';
    }, 900);
  } else if (key === '/') {
    e.preventDefault();
    palette();
  } else if (key === '?') help();
  else if (key === 'p') $('.live')?.click();
  else if (key === 'j') move(1);
  else if (key === 'k') move(-1);
  else if (key === 'x' && cur >= 0) $('input[type=checkbox]', rows[cur])?.click();
  else if (key === 'r' && cur >= 0) $('[data-act=retry], [data-act=replay]', rows[cur])?.click();
  else if (/^[1-5]$/.test(key)) $$('a[href^="?range="]')[key - 1]?.click();
}
