'use strict';

/* == Live: one event stream a tab, asleep while the tab is hidden */
const live = {
  on: url.get('live') !== 'off',
  source: null,
  lost: null,
  state: root.dataset.store || '', // '', live, lost or away
  start() {
    if (this.on && !document.hidden && !this.source && root.dataset.role) this.open();
    this.show();
  },
  end() {
    this.source?.close();
    this.source = null;
    this.quiet();
    this.show('');
  },
  again() {
    if (this.source) {
      this.end();
      this.start();
    }
  }, // the view has changed
  toggle() {
    this.on = !this.on;
    url.set({ live: this.on ? '' : 'off' });
    this.on ? this.start() : this.end();
    say(this.on ? 'Live updates on' : 'Live updates paused');
  },
  show(state = this.state) {
    // what the header says: "Live" is green only while updates come
    const b = $('.live'),
      words = { live: 'Live', lost: 'Reconnecting', away: 'Store unreachable' };
    this.state = state;
    $$('.side .store .dot').forEach(d => {
      d.classList.toggle('red', state === 'away');
      d.classList.toggle('green', state !== 'away');
    });
    if (!b) return;
    b.dataset.state = state;
    b.setAttribute('aria-pressed', this.on);
    $('span:last-child', b).textContent = words[state] || (this.on ? 'Live' : 'Live off');
  },
  open() {
    const source = (this.source = new EventSource(site.pathname + 'live?view=' + encodeURIComponent(here())));
    source.addEventListener('open', () => {
      const stale = $('.banner.s-crit');
      this.quiet();
      this.show('live');
      if (stale) refresh();
    });
    source.addEventListener('error', () => this.broken());
    source.addEventListener('patch', e => patch(JSON.parse(e.data)));
    source.addEventListener('rows', e => newRows(JSON.parse(e.data).ids));
    source.addEventListener('state', e => this.told(JSON.parse(e.data).store));
  },
  broken() {
    // after 5 s a note, after 30 s the banner
    if (this.lost || !this.source) return;
    const at = clock(now(), true);
    this.show('lost');
    this.lost = [
      setTimeout(() => this.say('warn', 'Live updates stopped; reconnecting. This page may be out of date.'), 5000),
      setTimeout(() => this.say('crit', `Cannot reach the server. This page shows data from ${at} UTC.`), 30000),
    ];
    if (this.source.readyState === EventSource.CLOSED)
      setTimeout(() => {
        if (this.source) {
          this.source.close();
          this.source = null;
          this.start();
        }
      }, 5000);
  },
  told(store) {
    if (store === 'gone') {
      this.show('away');
      this.say(
        'crit',
        `Cannot reach the store. This page shows data from ${clock(now(), true)} UTC; actions are disabled.`,
      );
      $('main').inert = true;
    } else {
      this.quiet();
      this.show('live');
      refresh();
    }
  },
  say(kind, text) {
    this.hush();
    if (kind === 'crit') $$('[data-verdict]').forEach(h1 => (h1.textContent = 'Status unknown'));
    $('.top').after(
      h(
        'div',
        { class: 'banner s-' + kind, role: 'status' },
        icon(kind === 'crit' ? 'crit' : 'warn'),
        h('span', {}, text),
      ),
    );
  },
  hush() {
    $$('.banner').forEach(b => b.remove());
  },
  quiet() {
    this.lost?.forEach(clearTimeout);
    this.lost = null;
    this.hush();
    if ($('main')) $('main').inert = false;
  },
};
let sooner;
function patch(changes) {
  // [{ id, text }]: the id names a cell that the server drew
  let again = false;
  for (const { id, text } of changes) {
    const el = document.getElementById(id);
    if (!el) continue;
    if (el.tagName === 'PROGRESS') {
      el.value = +text;
      continue;
    }
    if (el.tagName === 'path') {
      el.setAttribute('d', text);
      continue;
    }
    if (el.textContent.trim() === text) continue;
    (el.firstChild?.nodeType === 3 ? el.firstChild : el).textContent = text;
    if ('refresh' in el.dataset) again = true; // more than this cell has changed
    el.classList.remove('flash');
    void el.offsetWidth;
    el.classList.add('flash');
    if (id === 'n-nav-overview') tabIcon();
  }
  if (again) {
    clearTimeout(sooner);
    sooner = setTimeout(refresh, 100);
  }
}
function tail(at) {
  // a log is read at its end, unless someone has scrolled up
  const logs = $('.logs[data-live]', at);
  if (!logs) return;
  if (tail.up == null) logs.scrollTop = logs.scrollHeight;
  else logs.scrollTop = tail.up;
  logs.addEventListener('scroll', () => {
    tail.up = logs.scrollTop + logs.clientHeight > logs.scrollHeight - 24 ? null : logs.scrollTop;
  });
}

/* == Start */
function topbar() {
  // made here, for none of it works without the script
  const themes = () =>
    h(
      'div',
      { class: 'seg theme', role: 'group', 'aria-label': 'Theme' },
      theme('auto', 'System theme', 'auto'),
      theme('light', 'Light theme', 'sun'),
      theme('dark', 'Dark theme', 'moon'),
    );
  const theme = (name, label, i) =>
    h(
      'button',
      { 'data-theme-set': name, 'aria-label': label, title: label, onclick: () => store.set('theme', setTheme(name)) },
      icon(i),
    );
  $('.top').append(
    h(
      'button',
      { class: 'find', 'aria-label': 'Search', onclick: palette },
      icon('search'),
      h('span', {}, 'Search'),
      h('kbd', {}, '/'),
    ),
    ...(root.dataset.role || live.state
      ? [
          h(
            'button',
            { class: 'live', title: 'Live updates (p)', onclick: () => live.toggle() },
            h('span', { class: 'dot' }),
            h('span', {}, 'Live'),
          ),
        ]
      : []),
    themes(),
    h(
      'button',
      { class: 'ib', 'aria-label': 'Keyboard shortcuts', title: 'Keyboard shortcuts (?)', onclick: help },
      icon('help'),
    ),
  );
  $('.side').append(themes());
  setTheme(query.get('theme') || store.get('theme') || 'auto');
}
function tabIcon() {
  // the tab tells it too: a red dot, and the number in the title
  const n = +($('#n-nav-overview')?.textContent.replace(/\D/g, '') || 0),
    dot = n ? "<circle cx='15.5' cy='4.5' r='4.5' fill='#e5484d'/>" : '';
  document.title = (n ? `(${n}) ` : '') + document.title.replace(/^\(\d+\) /, '');
  const drawn =
    'data:image/svg+xml,' +
    encodeURIComponent(
      `<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 20 20'><rect width='20' height='20' rx='5' fill='#1a1a18'/><path d='M5.5 15V5.5M14.5 15V5.5M10 9.5v-4' stroke='#fff' stroke-width='2' stroke-linecap='round'/>${dot}</svg>`,
    );
  $('link[rel=icon]').href = drawn;
}
function tryAgain() {
  // a page that says that something is away is loaded again
  const retry = $('[data-retry]');
  if (retry) setTimeout(() => location.reload(), retry.dataset.retry * 1000);
}
function enhance(at) {
  // what the script adds, to the page or to a part that is new
  const within = (sel, act) => {
    if (at.matches?.(sel)) act(at);
    $$(sel, at).forEach(act);
  };
  within('.menu-pop', p =>
    p.addEventListener('toggle', e => {
      if (e.newState !== 'open') return;
      const by = $(`[popovertarget=${p.id}]`).getBoundingClientRect();
      p.style.left = Math.max(8, Math.min(by.right - p.offsetWidth, innerWidth - p.offsetWidth - 8)) + 'px';
      p.style.top = (by.bottom + p.offsetHeight + 8 > innerHeight ? by.top - p.offsetHeight - 4 : by.bottom + 4) + 'px';
      $('button, a', p)?.focus();
    }),
  );
  within('table[data-acts]', decorate);
  within('table[data-sort]', sortable);
  within('[data-list]', box => {
    selecting(box);
    filtering(box);
  });
  within('.tabs [aria-current]', a => {
    a.parentNode.scrollLeft = a.offsetLeft - a.parentNode.offsetLeft - 24;
  });
  tail(at);
}
document.addEventListener('DOMContentLoaded', () => {
  if (!$('.top')) return;
  topbar();
  tabIcon();
  document.body.append(h('div', { id: 'say', class: 'vh', 'aria-live': 'polite' }));
  document.addEventListener('click', follow);
  document.addEventListener('click', actions);
  document.addEventListener('click', e => {
    const c = e.target.closest('[data-copy]');
    if (!c) return;
    const text = c.dataset.copy.startsWith('#')
      ? document.getElementById(c.dataset.copy.slice(1)).textContent
      : c.dataset.copy;
    navigator.clipboard?.writeText(text).catch(() => {});
    c.closest('[popover]')?.hidePopover?.();
    toast('Copied', { icon: 'check' });
  });
  document.addEventListener('submit', once);
  document.addEventListener('keydown', keyboard);
  document.addEventListener('mouseover', titles);
  document.addEventListener('visibilitychange', () => (document.hidden ? live.end() : live.start()));
  addEventListener('popstate', () => {
    refresh();
    dispatchEvent(new Event('range'));
  });
  addEventListener('pagehide', () => live.end());
  enhance(document);
  charts();
  live.start();
  tryAgain();
  setInterval(() => {
    if (!document.hidden && live.on) tick();
  }, 1000);
});
