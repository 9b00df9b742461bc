'use strict';

/* == Dialogs and toasts */
function dialog(kids, cls) {
  const d = h('dialog', { class: cls, 'aria-labelledby': 'dlg-t' }, kids);
  d.addEventListener('close', () => d.remove());
  d.addEventListener('click', e => {
    if (e.target === d) d.close();
  });
  document.body.append(d);
  d.showModal();
  return d;
}
const note = (kind, text) =>
  h('div', { class: 'note s-' + kind }, icon(kind === 'crit' ? 'crit' : 'warn'), h('p', {}, text));
const facts = list =>
  h(
    'dl',
    { class: 'kv box' },
    list.flatMap(([k, v]) => [h('dt', {}, k), h('dd', {}, v)]),
  );
function toast(text, o = {}) {
  let box = $('.toasts');
  if (!box) document.body.append((box = h('div', { class: 'toasts', role: 'status' })));
  const act = o.act || (o.undo && ['Undo', o.undo]);
  const t = h(
    'div',
    { class: 'toast' + (o.icon === 'check' ? ' s-done' : o.icon === 'warn' ? ' s-warn' : '') },
    icon(o.icon || 'info'),
    h('span', {}, text),
    act
      ? h(
          'button',
          {
            class: 'btn quiet',
            onclick: () => {
              act[1]();
              if (!o.keep) t.remove();
            },
          },
          act[0],
        )
      : h('button', { class: 'ib', 'aria-label': 'Dismiss', onclick: () => t.remove() }, icon('x')),
  );
  box.append(t);
  if (!o.keep) setTimeout(() => t.remove(), o.undo ? 10000 : o.icon === 'warn' ? 8000 : 5000);
  return t;
}

/* == Acts. The nearest [data-at] has the API's path of the thing, the list's [data-many] that of its queue; the verb is
   the last part of the path, unless it says otherwise. */
const stopped = (n, asked) =>
  [
    n > asked || !n ? `${plural(n - asked, 'job')} cancelled` : '',
    asked ? `${plural(asked, 'running job')} told to stop` : '',
  ]
    .filter(Boolean)
    .join(', ');
const VERBS = {
  retry: { word: 'Retry', icon: 'retry', done: n => `${plural(n, 'job')} retried` },
  remove: {
    word: 'Remove',
    icon: 'trash',
    done: n => `${plural(n, 'job')} removed`,
    danger: true,
    sure: true,
    method: 'DELETE',
    path: '',
  },
  replay: { word: 'Replay', icon: 'retry', done: n => `${plural(n, 'dead letter')} replayed` },
  discard: {
    word: 'Discard',
    icon: 'trash',
    done: n => `${plural(n, 'dead letter')} discarded`,
    danger: true,
    sure: true,
  },
  cancel: {
    word: 'Cancel',
    icon: 'cancelled',
    done: (n, w, found) => stopped(n, found.requested ?? +(found.outcome === 'requested')),
    sure: true,
    final: true,
  },
  promote: {
    word: 'Run now',
    bulk: 'Promote',
    icon: 'skip',
    done: n => (n > 1 ? `${plural(n, 'job')} promoted` : 'The job runs as soon as a slot is free'),
  },
  pause: {
    word: 'Pause',
    icon: 'pause',
    done: (n, w) => `${w} paused: running jobs finish, no new ones start`,
    undo: 'resume',
  },
  resume: { word: 'Resume', icon: 'play', done: (n, w) => `${w} resumed`, undo: 'pause' },
  run: { word: 'Run now', icon: 'play', done: (n, w) => `Added a run of ${w}` },
  trip: { word: 'Trip', icon: 'open', done: (n, w) => `Circuit ${w} opened`, undo: 'reset' },
  reset: { word: 'Close', icon: 'check', done: (n, w) => `Circuit ${w} closed`, undo: 'trip' },
  quiet: { word: 'Quiet', icon: 'pause', done: (n, w) => `${w} claims no more jobs` },
  stop: {
    word: 'Stop',
    icon: 'x',
    done: (n, w) => `${w} stops when its running jobs finish`,
    danger: true,
    sure: true,
  },
  drain: { word: 'Remove', icon: 'trash', done: n => `${plural(n, 'job')} removed`, danger: true, sure: true },
};
const TELLS = {
  retry: [
    'It returns to the end of its queue with a fresh set of attempts. For a failed parent, the children that did not ' +
      'succeed run again too.',
    'They return to the end of the queue with a fresh set of attempts. For failed parents, the children that did not ' +
      'succeed run again too. Jobs that fail after this moment are not included.',
  ],
  replay: [
    'It returns to its original queue, under the same name and id. For a parent, the dead letters of its children are ' +
      'replayed too.',
    'Each returns to its original queue, under the same name and id. For parents, the dead letters of their children ' +
      'are replayed too.',
  ],
  remove: [
    'Deletes the job with its log and result. This cannot be undone.',
    'Deletes the jobs with their logs and results. This cannot be undone.',
  ],
  discard: [
    'Deletes the dead letter with its data and traceback. This cannot be undone.',
    'Deletes the dead letters with their data and tracebacks. This cannot be undone.',
  ],
  cancel: [
    'A waiting job never runs. A running job is told to stop and ends as cancelled, without a retry.',
    'Waiting jobs never run. Running jobs are told to stop and end as cancelled, without a retry. This cannot be ' +
      'undone. Jobs added after this moment are not included.',
  ],
  promote: ['It no longer waits for its due time.', 'They no longer wait for their due times.'],
  stop: ['The worker claims no more jobs, finishes the ones it is running, and stops.', ''],
  drain: [
    'Deletes all waiting jobs. Running jobs continue. This cannot be undone.',
    'Deletes all waiting jobs. Running jobs continue. This cannot be undone.',
  ],
};
const written = () => h('small', {}, 'Recorded in the audit log');
function confirmed(verb, n, noun, about, act, more = [], open = false) {
  // asks first; `act` is done with what was filled in when the answer is yes
  const v = VERBS[verb],
    one = n === 1 && !open,
    danger = v.danger || (v.final && !one),
    typed = danger && n > 100,
    what = `${v.bulk && !one ? v.bulk : v.word} ${open ? `${num(n)} or more ${noun}s` : one ? 'this ' + noun : plural(n, noun)}`;
  const ok = h('button', { class: 'btn primary' + (danger ? ' danger' : ''), value: 'ok', disabled: typed }, what);
  const d = dialog(
    h(
      'form',
      { method: 'dialog' },
      h('h2', { id: 'dlg-t' }, what + '?'),
      h('p', {}, TELLS[verb]?.[one ? 0 : 1] || ''),
      about.length > 0 && facts(about),
      more,
      typed &&
        h(
          'label',
          {},
          h('span', {}, `Type ${num(n)} to confirm`),
          h('input', {
            class: 'input',
            autocomplete: 'off',
            'aria-label': `Type ${num(n)} to confirm`,
            oninput: e => {
              ok.disabled = e.target.value.replace(/\D/g, '') !== String(n);
            },
          }),
        ),
      h('footer', {}, written(), h('button', { class: 'btn', value: 'no' }, 'Back'), ok),
    ),
  );
  if (danger) $('.btn[value=no]', d).focus();
  else ok.focus();
  d.addEventListener('close', () => {
    if (d.returnValue === 'ok') act(filled(d));
  });
  return d;
}
/* Replaying many: with other attempts or waits, if wanted; and how many still have the data that their handlers take. */
const OPTIONS = {
  replay: () => [
    h(
      'label',
      {},
      h('span', {}, 'Attempts'),
      h(
        'select',
        { name: 'attempts', 'data-as': 'number' },
        h('option', { value: '' }, 'As before'),
        [1, 3, 5, 10].map(k => h('option', {}, String(k))),
      ),
    ),
    h(
      'label',
      {},
      h('span', {}, 'Delay between attempts'),
      h(
        'select',
        { name: 'backoff', 'data-as': 'json' },
        h('option', { value: '' }, 'As before'),
        h('option', { value: '{"type":"fixed","seconds":30}' }, 'Fixed, 30 s'),
        h('option', { value: '{"type":"exponential","seconds":5}' }, 'Exponential, from 5 s'),
      ),
    ),
  ],
};
async function fitting(d, where) {
  try {
    const found = await api.get('dead-letters/fit?' + new URLSearchParams(where || {}));
    if (!found.fit && !found.unfit) return; // nothing is known of their handlers here
    $('dl', d)?.append(
      h('dt', {}, 'Data check'),
      h(
        'dd',
        {},
        `${num(found.fit)} valid` +
          (found.unfit ? `, ${num(found.unfit)} invalid (not replayed)` : '') +
          (found.more ? ` (first ${num(found.looked)} checked)` : ''),
      ),
    );
  } catch {
    /* it is checked again when they are replayed */
  }
}
async function act(verb, at, what, row) {
  // one thing: done at once, greyed until the server has answered
  const v = VERBS[verb],
    path = at + (v.path ?? '/' + verb);
  row?.classList.add('stale');
  try {
    const found = await api.call(v.method || 'POST', path, v.method ? undefined : {});
    toast(v.done(1, what, found), { icon: 'check', undo: v.undo && (() => act(v.undo, at, what)) });
    if (verb === 'remove' && !row) location.href = $('.crumbs li:nth-last-child(2) a')?.href || site.href;
    else refresh();
  } catch (error) {
    row?.classList.remove('stale');
    toast(error.message, { icon: 'warn' });
  }
}
async function bulk(verb, many, body, n, then) {
  // at most 1,000 a call, with a cursor: progress can be shown and stopped
  let stop = false,
    done = 0,
    requested = 0,
    refused = 0,
    cursor;
  const bar = h('progress', { max: n || 1, value: 0, 'aria-label': 'Progress' });
  const t =
    n > 25 &&
    toast(`0 of ${num(n)}`, {
      icon: VERBS[verb].icon,
      act: [
        'Stop',
        () => {
          stop = true;
        },
      ],
      keep: true,
    });
  if (t) t.append(bar);
  try {
    do {
      const found = await api.post(`${many}/${verb}`, cursor ? { ...body, cursor } : body);
      done += found.done ?? found.removed ?? 0;
      requested += found.requested ?? 0;
      refused += (found.refused?.length || 0) + Object.keys(found.invalid || {}).length;
      cursor = found.cursor;
      if (t) {
        bar.value = done;
        $('span', t).textContent = `${num(done)} of ${num(n)}`;
      }
    } while (cursor && !stop);
    const left = refused ? `; ${num(refused)} left unchanged` : '';
    toast(stop ? `Stopped after ${num(done)}` : VERBS[verb].done(done, '', { requested }) + left, {
      icon: refused && !done ? 'warn' : 'check',
    });
  } catch (error) {
    toast(`${error.message}${done ? ` ${num(done)} were processed before that.` : ''}`, { icon: 'warn' });
  }
  if (t) t.remove();
  if (then && done) location.href = then;
  else refresh();
}
const listed = box => ({
  many: box.dataset.many,
  noun: box.dataset.noun || 'job',
  filter: JSON.parse(box.dataset.filter || '{}'),
});
function about(box) {
  const said = box.dataset.about;
  return [...(said ? [['Filter', said]] : []), ['As of', clock(now(), true) + ' UTC']];
}
function actions(e) {
  const b = e.target.closest('[data-act]');
  if (!b || b.disabled) return;
  const verb = b.dataset.act,
    v = VERBS[verb],
    box = b.closest('[data-list]'),
    bar = b.closest('.bulk'),
    row = b.closest('tr'),
    what = b.dataset.on || '';
  b.closest('[popover]')?.hidePopover?.();
  if (b.dataset.form) return ask(b);
  if (verb === 'stack') return stack(b, b.closest('[data-at]').dataset.at);
  if (bar || b.dataset.all != null) {
    const { many, noun, filter } = listed(b.dataset.many ? b : box);
    const ids =
      bar && bar.dataset.whole !== '1'
        ? $$('tbody tr', box)
            .filter(r => $('input[type=checkbox]', r)?.checked)
            .map(r => r.dataset.id)
        : null;
    const n = ids ? ids.length : +(b.dataset.all ?? box.dataset.match);
    const body = ids ? { ids } : filter;
    const d = confirmed(
      verb,
      n,
      noun,
      ids ? [] : about(b.dataset.many ? b : box),
      more => bulk(verb, many, { ...body, ...more }, n),
      OPTIONS[verb]?.() || [],
      !ids && !b.dataset.many && 'open' in box.dataset,
    );
    if (verb === 'replay' && !ids) fitting(d, body.where);
    return d;
  }
  const many = b.dataset.many || box?.dataset.many,
    at = b.dataset.many ? null : b.closest('[data-at]')?.dataset.at;
  const go =
    at != null
      ? () => act(verb, at, what, row)
      : () =>
          bulk(
            verb,
            many,
            { ids: [b.dataset.ids || row.dataset.id] },
            1,
            b.dataset.ids && !b.dataset.many && $('.crumbs a')?.href,
          );
  if (v.sure) return confirmed(verb, 1, b.dataset.noun || box?.dataset.noun || 'job', [], go);
  go();
}

/* == Where a running job is: its worker is asked, and answers within moments. */
async function stack(b, at) {
  b.disabled = true;
  b.setAttribute('aria-busy', 'true');
  try {
    const found = await api.post(`${at}/stack`),
      text = h(
        'pre',
        { class: 'code tb', id: 'stack', tabindex: '0', role: 'region', 'aria-label': 'Stack' },
        found.lines.flatMap((line, i) => [
          i ? '\n' : '',
          line.kind ? h('span', { class: line.kind }, line.text) : line.text,
        ]),
      );
    const d = dialog(
      h(
        'form',
        { method: 'dialog' },
        h('h2', { id: 'dlg-t' }, 'Stack'),
        h(
          'p',
          {},
          found.silent
            ? `The event loop of ${found.worker} has been blocked for ${span(found.silent)}. ` +
                'These are its threads, innermost frame first.'
            : `Captured on ${found.worker} at ${clock(now(), true)} UTC. The innermost frame is last.`,
        ),
        text,
        h(
          'footer',
          {},
          written(),
          h('button', { class: 'btn', type: 'button', 'data-copy': found.stack }, icon('copy'), 'Copy'),
          h(
            'button',
            {
              class: 'btn',
              type: 'button',
              onclick: () => {
                d.close();
                stack(b, at);
              },
            },
            icon('retry'),
            'Refresh',
          ),
          h('button', { class: 'btn primary', value: 'ok' }, 'Close'),
        ),
      ),
      'wide',
    );
    if (!found.silent) text.scrollTop = text.scrollHeight;
    $('.btn.primary', d).focus();
  } catch (error) {
    toast(error.message, { icon: 'warn' });
  }
  b.disabled = false;
  b.removeAttribute('aria-busy');
}

/* == Forms that the server drew as <template id=form-…>: asked in a dialog, sent as JSON. A field's name is its place in
   the body; `data-as` says what it is: a number, json, or a text. What is left empty is left out, or null if data-null. */
function filled(form) {
  const body = {};
  for (const field of $$('[name]', form)) {
    const text = field.type === 'checkbox' ? (field.checked ? 'true' : '') : field.value,
      as = field.dataset.as,
      [first, second] = field.name.split('.');
    let value = text;
    if ('same' in field.dataset && text === field.defaultValue) continue;
    if (text.trim() === '') {
      if (!('null' in field.dataset)) continue;
      value = null;
    } else if (as === 'number') {
      value = Number(text.replace(/[,\s]/g, ''));
      if (isNaN(value)) throw new Refused(422, { message: `Not a number: ${text}`, field: field.name });
    } else if (as === 'json') {
      try {
        value = JSON.parse(text);
      } catch (error) {
        throw new Refused(422, { message: `Invalid JSON: ${error.message}`, field: field.name });
      }
    }
    if (!second) body[first] = value;
    else if (value !== null) (body[first] ||= {})[second] = value;
    else body[first] ??= null;
  }
  return body;
}
function ask(b) {
  const source = document.getElementById('form-' + b.dataset.form),
    verb = b.dataset.act,
    wrong = h('div', {});
  const form = h(
    'form',
    { method: 'dialog' },
    source.content.cloneNode(true),
    wrong,
    h(
      'footer',
      {},
      written(),
      h('button', { class: 'btn', value: 'no', formnovalidate: true }, 'Back'),
      h('button', { class: 'btn primary', value: 'ok' }, source.dataset.word),
    ),
  );
  const title = $('h2', form);
  title.id = 'dlg-t';
  const at = source.dataset.at ?? b.closest('[data-at]').dataset.at,
    send = body => api.call(source.dataset.method || 'POST', at, body);
  const d = dialog(form);
  form.addEventListener('submit', async e => {
    if (e.submitter?.value !== 'ok') return;
    e.preventDefault();
    try {
      const body = { ...JSON.parse(source.dataset.body || '{}'), ...filled(form) },
        before = source.dataset.before && JSON.parse(source.dataset.before);
      const found = await send(body),
        invalid = Object.values(found.invalid || {})[0];
      if (invalid || found.refused?.length)
        throw new Refused(409, {
          message: invalid || 'Not replayed: the dead letter is gone, or its queue already has a job with this id.',
        });
      d.close();
      toast(source.dataset.done || VERBS[verb]?.done(1, b.dataset.on || '', found) || 'Done', {
        icon: 'check',
        undo: before && (() => send(before).then(refresh, error => toast(error.message, { icon: 'warn' }))),
        act:
          found.id && source.dataset.opens
            ? [
                'Open',
                () => {
                  location.href = to('queues', found.queue, 'jobs', found.id);
                },
              ]
            : undefined,
      });
      if (source.dataset.then) location.href = to(source.dataset.then);
      else refresh();
    } catch (error) {
      wrong.replaceChildren(note('crit', error.message));
      $(`[name^="${error.field || '-'}"]`, form)?.focus();
    }
  });
}

/* == A form of a page is sent once: a second click would only find that it had been. It can be sent again if one comes
   back to it. */
function once(e) {
  const form = e.target.closest('form[data-once]');
  if (!form || e.defaultPrevented) return;
  const sent = e.submitter;
  setTimeout(() => {
    $$('button', form).forEach(b => (b.disabled = true));
    sent?.setAttribute('aria-busy', 'true');
  });
  addEventListener('pageshow', () => {
    $$('button', form).forEach(b => (b.disabled = false));
    sent?.removeAttribute('aria-busy');
  });
}
