/* Toril's pages. One script, no dependency, no innerHTML: text reaches the page by textContent alone.
   It is written in parts that share one scope and are sent as one file. It is loaded in <head> without defer, so that
   the theme is set before the first paint; all else waits for the document. */
'use strict';

/* == Theme: auto, light, dark */
const root = document.documentElement;
const store = {
  get(k) {
    try {
      return localStorage.getItem('toril.' + k);
    } catch {
      return null;
    }
  },
  set(k, v) {
    try {
      localStorage.setItem('toril.' + k, v);
    } catch {
      /* private mode: forget it */
    }
  },
};
const query = new URLSearchParams(location.search);
setTheme(query.get('theme') || store.get('theme') || 'auto');
function setTheme(theme) {
  if (theme === 'auto') delete root.dataset.theme;
  else root.dataset.theme = theme;
  for (const b of document.querySelectorAll('[data-theme-set]'))
    b.setAttribute('aria-pressed', b.dataset.themeSet === theme);
  return theme;
}

/* == Small tools */
const $ = (sel, at = document) => at.querySelector(sel);
const $$ = (sel, at = document) => [...at.querySelectorAll(sel)];
const SVG = 'http://www.w3.org/2000/svg';
function make(el, attrs, kids) {
  for (const [k, v] of Object.entries(attrs || {})) {
    if (v == null || v === false) continue;
    if (k.startsWith('on')) el.addEventListener(k.slice(2), v);
    else el.setAttribute(k, v === true ? '' : v);
  }
  el.append(...kids.flat().filter(k => k != null && k !== false));
  return el;
}
const h = (tag, attrs, ...kids) => make(document.createElement(tag), attrs, kids);
const s = (tag, attrs, ...kids) => make(document.createElementNS(SVG, tag), attrs, kids);
const icon = name => h('i', { class: 'i-' + name });
const num = n => Math.round(n).toLocaleString('en-US');
const plural = (n, one, many = one + 's') => `${num(n)} ${n === 1 ? one : many}`;
const two = n => String(n).padStart(2, '0');
function span(sec) {
  // 0.42 -> "420 ms", 252 -> "4m 12s": the two largest units, never broken over lines
  const pair = (a, u, b, v) => `${Math.floor(a)}${u}\u00a0${v === 'h' ? b : two(b)}${v}`;
  if (sec < 1) return Math.round(sec * 1000) + '\u00a0ms';
  if (sec < 59.5) return (sec < 10 ? sec.toFixed(1).replace('.0', '') : Math.round(sec)) + '\u00a0s';
  sec = Math.round(sec);
  if (sec < 3600) return pair(sec / 60, 'm', sec % 60, 's');
  if (sec < 86400) return pair(sec / 3600, 'h', Math.floor((sec % 3600) / 60), 'm');
  return pair(sec / 86400, 'd', Math.floor((sec % 86400) / 3600), 'h');
}
/* The store's clock rules: the server writes its time on <html>, and ages are counted from there. */
const skew = Date.parse(root.dataset.now || new Date().toISOString()) - Date.now();
const now = () => Date.now() + skew;
const clock = (ms, secs) => new Date(ms).toISOString().slice(11, secs ? 19 : 16);
const say = text => {
  const box = $('#say');
  if (box) {
    box.textContent = '';
    box.textContent = text;
  }
};

/* == Where we are, and asking the server */
const site = new URL(root.dataset.root || './', location.href); // the pages may be mounted under any prefix
const here = () => location.pathname.slice(site.pathname.length) + location.search;
const to = (...parts) => site.pathname + parts.map(encodeURIComponent).join('/');
class Refused extends Error {
  constructor(status, error) {
    super(
      error?.incident
        ? `Something went wrong. Look for incident ${error.incident} in the server log.`
        : error?.message || `Unexpected response (HTTP ${status}).`,
    );
    this.status = status;
    this.field = error?.field;
  }
}
const api = {
  async call(method, path, body) {
    let answer;
    try {
      answer = await fetch(site.pathname + 'api/v1/' + path, {
        method,
        headers: body ? { 'content-type': 'application/json' } : {},
        body: body && JSON.stringify(body),
      });
    } catch {
      throw new Refused(0, { message: 'No response from the server. The action may not have taken effect.' });
    }
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) throw new Refused(answer.status, found.error);
    return found;
  },
  get: path => api.call('GET', path),
  post: (path, body) => api.call('POST', path, body || {}),
};

/* == URL state: every view can be shared */
const url = {
  get: (k, d = '') => new URLSearchParams(location.search).get(k) ?? d,
  set(change, push) {
    const q = new URLSearchParams(location.search);
    for (const [k, v] of Object.entries(change)) v === '' || v == null ? q.delete(k) : q.set(k, v);
    const to = location.pathname + (q.size ? '?' + q : '') + location.hash;
    history[push ? 'pushState' : 'replaceState'](null, '', to);
  },
};
/* Tabs, ranges and facets are plain links such as ?state=failed. With the script they change the view in place: the
   same page is fetched, and the regions of this one give way to those of that one. */
const params = a => [...new URLSearchParams(a.getAttribute('href'))];
function follow(e) {
  const a = e.target.closest('main a[href^="?"]');
  if (!a || e.metaKey || e.ctrlKey || e.shiftKey) return;
  e.preventDefault();
  const change = Object.fromEntries(params(a));
  const ranged = 'range' in change && !('after' in change); // a link to the next page has all of the query
  if (!('after' in change) && !ranged) change.after = '';
  if (a.closest('.facets') && a.hasAttribute('aria-current')) for (const k in change) change[k] = '';
  url.set(change, true);
  ranged ? dispatchEvent(new Event('range')) : refresh();
}
let asked = 0;
async function refresh() {
  // what is shown stays until the new is there
  const mine = ++asked,
    regions = $$('[data-region]'),
    late = setTimeout(() => regions.forEach(r => r.setAttribute('aria-busy', 'true')), 300);
  try {
    const answer = await fetch(location.href, { headers: { accept: 'text/html' } });
    const page = new DOMParser().parseFromString(await answer.text(), 'text/html');
    if (mine !== asked) return;
    if (!answer.ok || !$('[data-region]', page)) {
      if ($('form[data-once]')) return; // what was typed stays, whatever has become of its job
      $('main').replaceWith(document.adoptNode($('main', page)));
      live.show(page.documentElement.dataset.store);
      tryAgain();
      return;
    }
    const at = document.activeElement,
      kept = at?.closest('[data-region]') && at.name,
      from = at?.selectionStart;
    for (const old of regions) {
      const fresh = page.getElementById(old.id);
      if (!fresh) {
        old.remove();
        continue;
      }
      old.replaceWith(document.adoptNode(fresh));
      enhance(fresh);
      if (kept && $(`[name="${kept}"]`, fresh)) {
        const input = $(`[name="${kept}"]`, fresh);
        input.value = at.value;
        input.focus();
        if (input.setSelectionRange && from != null) input.setSelectionRange(from, from);
      }
    }
    document.title = page.title;
    tabIcon();
    tick();
    live.again();
  } catch (error) {
    toast('Could not refresh the page. ' + (error.message || ''), { icon: 'warn' });
  } finally {
    clearTimeout(late);
    $$('[data-region]').forEach(r => r.removeAttribute('aria-busy'));
  }
}

/* == Time on the page */
function tick() {
  for (const t of $$('time[datetime]')) {
    const d = (now() - Date.parse(t.dateTime)) / 1000,
      abs = Math.abs(d);
    const text =
      t.dataset.t === 'for'
        ? span(abs)
        : t.dataset.t === 'in'
          ? d < 0
            ? 'in\u00a0' + span(abs)
            : 'now'
          : abs < 1
            ? 'now'
            : span(abs).replace(/^(\d+m)\s\d\ds$/, abs > 600 ? '$1' : '$&') + '\u00a0ago';
    if (t.textContent !== text) t.textContent = text;
  }
}
function titles(e) {
  const t = e.target.closest?.('time[datetime]');
  if (t && !t.title) t.title = t.dateTime.replace('T', ' ').replace('Z', ' UTC');
}
