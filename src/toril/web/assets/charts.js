'use strict';
/* == Charts: area, bars or lines, with a crosshair shared by all charts of a group */
const KINDS = {
  completed: { kind: 'area', fmt: num, lines: [['completed', '']] },
  failed: { kind: 'bars', fmt: num, lines: [['failed', '']], beside: 'cancelled' }, // told in words: it is no failure
  wait: {
    kind: 'line',
    fmt: span,
    lines: [
      ['p50', 'thin'],
      ['p95', ''],
      ['p99', 'dots'],
    ],
    main: 1,
  },
  run: {
    kind: 'line',
    fmt: span,
    lines: [
      ['p50', 'thin'],
      ['p95', ''],
      ['p99', 'dots'],
    ],
    main: 1,
  },
};
class Chart {
  constructor(fig) {
    this.fig = fig;
    this.key = fig.dataset.chart;
    this.spec = KINDS[this.key];
    fig.classList.add('c-' + this.key);
    this.title = $('figcaption b', fig).textContent;
    this.val = h('span', { class: 'val' });
    $('figcaption', fig).append(this.val);
    this.plot = h('div', { class: 'plot', tabindex: 0, role: 'group' });
    this.table = h('div', { class: 'tw', tabindex: 0, role: 'region', hidden: true });
    this.toggle = h(
      'button',
      {
        class: 'ib',
        'aria-pressed': 'false',
        'aria-label': `Show ${this.title.toLowerCase()} as a table`,
        onclick: () => this.asTable(this.table.hidden),
      },
      icon('table'),
    );
    fig.append(this.toggle, this.plot, this.table);
    this.plot.addEventListener('pointermove', e => this.group.point(this.at(e.clientX)));
    this.plot.addEventListener('pointerleave', () => this.group.point(null));
    this.plot.addEventListener('blur', () => this.group.point(null));
    this.plot.addEventListener('keydown', e => this.step(e));
    new ResizeObserver(() => this.data && this.draw()).observe(this.plot);
  }
  set(data) {
    this.data = data;
    this.draw();
    if (!this.table.hidden) this.asTable(true);
  }

  values(i) {
    return this.data.series[this.key][i];
  }
  get n() {
    return this.data.series[this.key][0].length;
  }
  time(i) {
    return this.data.start + i * this.data.step * 1000;
  }
  label(i) {
    const d = new Date(this.time(i)),
      day = d.toUTCString().slice(0, 11).replace(',', '');
    return (this.data.step * this.n > 90000 ? day + ' ' : '') + clock(+d);
  }
  draw() {
    const W = this.plot.clientWidth || 400,
      H = this.plot.clientHeight || 132,
      L = 44,
      R = 6,
      T = 12,
      B = 18;
    const { kind, fmt, lines, main = 0 } = this.spec,
      rows = lines.map((_, k) => this.values(k)),
      n = this.n;
    const top = Chart.nice(Math.max(...rows.flat().filter(v => v != null), kind === 'line' ? 0.1 : 4), kind === 'line');
    const x = (this.x = i => L + (W - L - R) * (kind === 'bars' ? (i + 0.5) / n : i / (n - 1))),
      y = (this.y = v => T + (H - T - B) * (1 - v / top));
    const axis = v =>
        fmt(v)
          .replace(/m\s00s$/, 'm')
          .replace(/h\s00m$/, 'h'),
      svg = s('svg', { viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': this.summary() });
    for (const v of [0, top / 2, top]) {
      svg.append(
        s('line', {
          class: v ? 'grid' : 'base',
          x1: L,
          x2: W - R,
          y1: Math.round(y(v)) + 0.5,
          y2: Math.round(y(v)) + 0.5,
        }),
        s('text', { x: L - 8, y: y(v) + 3.5, 'text-anchor': 'end' }, v ? axis(v) : '0'),
      );
    }
    for (const i of this.ticks(W))
      svg.append(
        s(
          'text',
          { x: x(i), y: H - 3, 'text-anchor': x(i) < L + 16 ? 'start' : x(i) > W - 24 ? 'end' : 'middle' },
          this.tick(i),
        ),
      );
    for (const m of this.data.marks) {
      const i = (m.t - this.data.start) / 1000 / this.data.step;
      if (i < 0 || i > n - 1) continue;
      const right = x(i) > W - 90;
      svg.append(
        s('line', { class: 'mark', x1: x(i), x2: x(i), y1: 2, y2: H - B }),
        s('text', { class: 'mk', x: x(i) + (right ? -4 : 4), y: 9, 'text-anchor': right ? 'end' : 'start' }, m.text),
      );
    }
    if (kind === 'bars') {
      const w = Math.max(1, Math.min(5, (W - L - R) / n - 2));
      svg.append(
        s('path', {
          class: 'bars',
          'stroke-width': w,
          d: rows[0]
            .map((v, i) => (v ? `M${x(i).toFixed(1)} ${y(0)}V${Math.min(y(v), y(0) - 1.5).toFixed(1)}` : ''))
            .join(''),
        }),
      );
    } else
      rows.forEach((row, k) => {
        const d = Chart.path(row, x, y);
        if (kind === 'area') svg.append(s('path', { class: 'area', d: `${d}L${x(n - 1)} ${y(0)}L${x(0)} ${y(0)}Z` }));
        svg.append(s('path', { class: 'ln ' + lines[k][1], d }));
      });
    this.extremes(svg, rows[main], W);
    this.cross = s('g', { visibility: 'hidden' });
    svg.append(this.cross);
    this.plot.replaceChildren(svg);
    this.plot.setAttribute('aria-label', `${this.title}: use the left and right arrow keys to read values`);
    this.read(null);
  }
  extremes(svg, row, W) {
    // ring and figure at the highest point, and at the lowest when it tells something
    const seen = row.map((v, i) => [v, i]).filter(p => p[0] != null);
    if (!seen.some(p => p[0])) return;
    const hi = seen.reduce((a, b) => (b[0] > a[0] ? b : a)),
      lo = seen.reduce((a, b) => (b[0] < a[0] ? b : a));
    for (const [v, i] of this.spec.kind === 'bars' || lo[0] > hi[0] * 0.8 ? [hi] : [hi, lo]) {
      const px = this.x(i),
        end = px > W - 60;
      svg.append(
        s('circle', { class: 'ext', cx: px, cy: this.y(v), r: 2.5 }),
        s(
          'text',
          {
            class: 'extl',
            x: px + (end ? -6 : 6),
            y: this.y(v) + (v === hi[0] ? -3 : -5),
            'text-anchor': end ? 'end' : 'start',
          },
          this.spec.fmt(v),
        ),
      );
    }
  }
  static path(row, x, y) {
    // a minute without jobs has no percentile: the line breaks there
    let d = '',
      pen = false;
    row.forEach((v, i) => {
      if (v == null) {
        pen = false;
        return;
      }
      d += `${pen ? 'L' : 'M'}${x(i).toFixed(1)} ${y(v).toFixed(1)}`;
      pen = true;
    });
    return d;
  }
  static nice(v, time) {
    const steps = time && v > 60 ? [120, 180, 240, 300, 600, 900, 1200, 1800, 3600, 7200, 14400, 43200, 86400] : null;
    if (steps) return steps.find(k => k >= v) || v;
    const p = 10 ** Math.floor(Math.log10(v));
    return [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10].map(k => k * p).find(k => k >= v);
  }
  ticks(W) {
    const total = this.data.step * this.n,
      per = { '1h': 900, '4h': 3600, '12h': 10800, '1d': 21600, '7d': 86400 }[this.data.range];
    const out = [];
    for (let t = Math.ceil(this.data.start / 1000 / per) * per; t < this.data.start / 1000 + total; t += per)
      out.push((t - this.data.start / 1000) / this.data.step);
    return W < 320 ? out.filter((_, i) => i % 2) : out;
  }
  tick(i) {
    return this.data.step * this.n > 90000
      ? new Date(this.time(i)).toUTCString().slice(0, 7).replace(',', '')
      : clock(this.time(i));
  }
  at(px) {
    const box = this.plot.getBoundingClientRect(),
      n = this.n,
      x0 = this.x(0),
      x1 = this.x(n - 1);
    return Math.max(0, Math.min(n - 1, Math.round(((px - box.left - x0) / (x1 - x0)) * (n - 1))));
  }
  step(e) {
    const by = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10, Home: -1e9, End: 1e9 }[e.key];
    if (!by) return;
    e.preventDefault();
    this.group.point(Math.max(0, Math.min(this.n - 1, (this.i ?? this.n - 1) + by)));
    say(`${this.label(this.i)}: ${this.val.textContent}`);
  }
  point(i) {
    this.i = i;
    if (!this.cross) return;
    this.cross.setAttribute('visibility', i == null ? 'hidden' : 'visible');
    if (i != null) {
      const px = Math.round(this.x(i)) + 0.5,
        h1 = this.plot.clientHeight - 18;
      this.cross.replaceChildren(
        s('line', { class: 'cross', x1: px, x2: px, y1: 2, y2: h1 }),
        ...this.spec.lines
          .map((_, k) => this.values(k)[i])
          .filter(v => v != null)
          .map(v => s('circle', { class: 'pt', cx: this.x(i), cy: this.y(v), r: 3.5 })),
      );
    }
    this.read(i);
  }
  read(i) {
    // the caption shows the whole range, or the point under the crosshair
    const { lines, fmt, kind, beside } = this.spec,
      whole = this.data[this.key],
      out = []; // of the whole range: also what has not ended
    if (i != null) out.push(h('span', {}, this.label(i)));
    lines.forEach(([name, cls], k) => {
      const v = i != null ? this.values(k)[i] : kind === 'line' ? whole[name] : whole;
      if (kind === 'line')
        out.push(h('span', {}, h('u', { class: cls }), ' ' + name, h('b', {}, v != null ? fmt(v) : '–')));
      else
        out.push(
          h(
            'span',
            {},
            h('b', {}, num(v || 0)),
            ' in ' + (i != null ? span(this.data.step).replace(/m\s00s$/, 'm') : this.data.range),
          ),
        );
    });
    const more = beside && (i != null ? this.data.series[beside][0][i] : this.data[beside]);
    if (more) out.push(h('span', {}, h('b', {}, num(more)), ' ' + beside));
    this.val.replaceChildren(...out);
  }
  summary() {
    const row = this.values(this.spec.main || 0).filter(v => v != null),
      f = this.spec.fmt;
    return row.length
      ? `${this.title}, last ${this.data.range}. Lowest ${f(Math.min(...row))}, highest ${f(Math.max(...row))}, latest ${f(row.at(-1))}.`
      : `${this.title}: no data in the last ${this.data.range}.`;
  }
  asTable(on) {
    this.toggle.setAttribute('aria-pressed', on);
    this.table.hidden = !on;
    this.plot.hidden = on;
    if (!on) return this.draw();
    this.table.setAttribute('aria-label', this.title + ' as a table');
    const { lines, beside, fmt } = this.spec,
      names = lines.map(l => l[0]),
      rows = lines.map((_, k) => this.values(k)),
      body = h('tbody');
    if (beside) {
      names.push(beside);
      rows.push(this.data.series[beside][0]);
    }
    for (let i = this.n - 1; i >= 0; i--)
      body.append(
        h(
          'tr',
          {},
          h('td', {}, this.label(i)),
          rows.map(row => h('td', { class: 'n' }, row[i] == null ? '–' : fmt(row[i]))),
        ),
      );
    this.table.replaceChildren(
      h(
        'table',
        {},
        h(
          'thead',
          {},
          h(
            'tr',
            {},
            h('th', {}, 'Time (UTC)'),
            names.map(n => h('th', { class: 'n' }, n)),
          ),
        ),
        body,
      ),
    );
  }
}
/* What the server sends, without the point that has not ended. */
function series(found) {
  const whole = rows => rows.map(row => row.slice(0, -1));
  return {
    ...found,
    series: Object.fromEntries(Object.entries(found.series).map(([name, rows]) => [name, whole(rows)])),
  };
}
function charts() {
  const box = $('[data-charts]');
  if (!box || box.dataset.drawn) return;
  box.dataset.drawn = '1';
  const group = {
    list: $$('.chart', box).map(f => new Chart(f)),
    point(i) {
      this.list.forEach(c => c.point(i));
    },
  };
  group.list.forEach(c => {
    c.group = group;
  });
  const load = async () => {
    const range = url.get('range', '1h');
    $$('a[href^="?range="]').forEach(a =>
      a.getAttribute('href') === '?range=' + range
        ? a.setAttribute('aria-current', 'true')
        : a.removeAttribute('aria-current'),
    );
    try {
      const data = series(await api.get(`queues/${encodeURIComponent(box.dataset.charts)}/metrics?range=${range}`));
      group.list.forEach(c => c.set(data));
    } catch (error) {
      toast('Could not load the charts. ' + error.message, { icon: 'warn' });
    }
  };
  addEventListener('range', load);
  setInterval(() => {
    if (!document.hidden && live.on) load();
  }, 60000);
  load();
}
