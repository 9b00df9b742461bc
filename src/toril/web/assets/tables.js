'use strict';

/* == Tables. The server draws the rows; what needs the script (sorting, boxes, row actions) the script adds. */
function worth(text) {
  // "1,284" -> 1284, "4m 12s" -> 252, "–" -> -1
  if (text === '–') return -1;
  const unit = { ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 },
    parts = [...text.matchAll(/([\d.]+)\s?(ms|s|m|h|d)\b/g)];
  if (parts.length) return parts.reduce((sum, [, n, u]) => sum + n * unit[u], 0);
  const n = parseFloat(text.replace(/,/g, ''));
  return isNaN(n) ? text : n;
}
function sortable(table) {
  const heads = $$('th[data-sort]', table);
  const apply = () => {
    const want = url.get('sort', table.dataset.sort),
      key = want.replace(/^-/, ''),
      down = want.startsWith('-'),
      col = heads.find(t => t.dataset.sort === key);
    heads.forEach(t =>
      t === col ? t.setAttribute('aria-sort', down ? 'descending' : 'ascending') : t.removeAttribute('aria-sort'),
    );
    if (!col || !url.get('sort')) return;
    const i = [...col.parentNode.children].indexOf(col),
      body = table.tBodies[0];
    [...body.rows]
      .map(r => [worth(r.cells[i].textContent.trim()), r])
      .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1))
      .forEach(([, r]) => body.append(r));
  };
  for (const th of heads)
    th.replaceChildren(
      h(
        'button',
        {
          onclick: () => {
            const cur = th.getAttribute('aria-sort'),
              first = th.classList.contains('n') ? '-' : '';
            url.set({ sort: (cur ? (cur === 'ascending' ? '-' : '') : first) + th.dataset.sort });
            apply();
          },
        },
        ...th.childNodes,
      ),
    );
  addEventListener('popstate', apply);
  apply();
}
/* What can be done with a row, by its data-state, or by the data-acts of its table; a reader's page comes without them. */
const ROW = {
  failed: ['retry', 'remove'],
  waiting: ['cancel', 'remove'],
  active: ['cancel'],
  delayed: ['promote', 'cancel'],
  children: ['cancel'],
  completed: ['retry', 'remove'],
  dead: ['replay', 'discard'],
  schedule: ['run', 'pause'],
  held: ['run', 'resume'],
  group: ['pause'],
  still: ['resume'],
  worker: ['quiet', 'stop'],
  muted: ['stop'],
  ending: [],
};
const NEEDS = { remove: 'admin', discard: 'admin', stop: 'admin' }; // the others need the role operate
const may = verb => root.dataset.role === 'admin' || (root.dataset.role === 'operate' && NEEDS[verb] !== 'admin');
function decorate(table) {
  const head = table.tHead.rows[0],
    pick = 'pick' in table.dataset,
    more = 'more' in table.dataset,
    wide = 'o1';
  if (head.dataset.done) return;
  head.dataset.done = '1';
  if (pick) head.prepend(h('th', {}, h('input', { type: 'checkbox', 'aria-label': 'Select all on this page' })));
  if (more) head.prepend(h('th', {}, h('span', { class: 'vh' }, 'Details')));
  head.append(h('th', { class: wide }, h('span', { class: 'vh' }, 'Actions')));
  for (const row of $$('tr[data-id]', table.tBodies[0])) {
    const id = row.dataset.id,
      acts = (ROW[row.dataset.acts || row.dataset.state || table.dataset.acts] || []).filter(may);
    if (pick) row.prepend(h('td', {}, h('input', { type: 'checkbox', 'aria-label': 'Select ' + id })));
    if (more)
      row.prepend(
        h(
          'td',
          {},
          h(
            'button',
            {
              class: 'ib',
              'aria-expanded': 'false',
              'aria-label': 'Details of ' + id,
              onclick: e => expand(row, e.currentTarget),
            },
            icon('chev'),
          ),
        ),
      );
    row.append(
      h(
        'td',
        { class: 'n ' + wide },
        h(
          'span',
          { class: 'row-acts' },
          acts.map(v =>
            h(
              'button',
              {
                class: 'ib',
                'data-act': v,
                'data-on': id,
                'aria-label': `${VERBS[v].word} ${id}`,
                title: VERBS[v].word,
              },
              icon(VERBS[v].icon),
            ),
          ),
        ),
      ),
    );
  }
}
function expand(row, button) {
  // the server drew what opens below a row as a <template> in it
  const open = button.getAttribute('aria-expanded') === 'false';
  button.setAttribute('aria-expanded', open);
  row.classList.toggle('has-more', open);
  if (!open) return row.nextElementSibling.remove();
  const cell = h('td', { colspan: row.cells.length });
  cell.append($('template', row).content.cloneNode(true));
  row.after(h('tr', { class: 'more' }, cell));
  tick();
}
/* A list: its form is sent as it is typed, and its regions are fetched anew. */
function filtering(box) {
  const input = $('input[type=search]', box),
    form = input?.form || $('form[role=search]', box);
  if (!form || form.dataset.done) return;
  form.dataset.done = '1';
  const send = push => {
    url.set({ ...Object.fromEntries(new FormData(form)), after: '' }, push);
    refresh();
  };
  let wait;
  input?.addEventListener('input', () => {
    clearTimeout(wait);
    wait = setTimeout(() => send(false), 250);
  });
  form.addEventListener('submit', e => {
    e.preventDefault();
    clearTimeout(wait);
    send(true);
  });
  $$('select[name]', form).forEach(f => f.addEventListener('change', () => send(true)));
}
function selecting(box) {
  const verbs = (box.dataset.bulk || '').split(' ').filter(Boolean),
    all = $('thead input[type=checkbox]', box);
  if (!verbs.some(may) || !all || $('.bulk', box)) return;
  const count = h('span'),
    more = h('button', { class: 'btn link' }),
    bar = h(
      'div',
      { class: 'bulk', role: 'region', 'aria-label': 'Actions for selected rows', hidden: true },
      count,
      more,
      verbs.filter(may).map(v => h('button', { class: 'btn', 'data-act': v }, icon(VERBS[v].icon), VERBS[v].word)),
      h('button', { class: 'btn', onclick: () => clear() }, 'Clear'),
    );
  box.append(bar);
  const every = () => $$('tbody input[type=checkbox]', box),
    boxes = () => every().filter(c => !c.closest('tr').hidden);
  let whole = false;
  const show = () => {
    const on = boxes().filter(c => c.checked),
      match = +(box.dataset.match || 0),
      n = whole ? match : on.length;
    every().forEach(c => c.closest('tr').setAttribute('aria-selected', c.checked));
    all.checked = on.length > 0 && on.length === boxes().length;
    all.indeterminate = on.length > 0 && !all.checked;
    bar.hidden = !on.length;
    bar.dataset.n = n;
    bar.dataset.whole = whole ? '1' : '';
    count.textContent = whole ? `All ${num(n)} matching` : `${num(n)} selected`;
    more.hidden = whole || !(match > on.length);
    more.textContent = `Select all ${num(match)} matching`;
  };
  const clear = () => {
    whole = false;
    every().forEach(c => {
      c.checked = false;
    });
    show();
  };
  box.addEventListener('change', e => {
    if (e.target === all)
      boxes().forEach(c => {
        c.checked = all.checked;
      });
    if (e.target.type === 'checkbox') {
      whole = false;
      show();
    }
  });
  box.addEventListener('clear', clear);
  more.addEventListener('click', () => {
    whole = true;
    boxes().forEach(c => {
      c.checked = true;
    });
    show();
  });
}

/* New rows wait behind a line: nothing moves under the pointer. */
function newRows(ids) {
  const body = $('[data-list] tbody'),
    region = body?.closest('[data-region]');
  if (!region || url.get('after')) return;
  const shown = new Set($$('tr[data-id]', region).map(r => r.dataset.id)),
    fresh = ids.filter(id => !shown.has(id)).length;
  let line = $('.fresh', region);
  if (!fresh) return line?.remove();
  if (!line) {
    line = h('button', {
      class: 'btn quiet fresh',
      type: 'button',
      onclick: () => {
        line.remove();
        refresh();
      },
    });
    body.closest('.tw').before(line);
  }
  line.textContent = `Show ${num(fresh)} new`;
}
