"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const el = (tag, text) => { const e = document.createElement(tag); if (text !== undefined) e.textContent = text; return e; };
  const count = (n) => n.toLocaleString("en-US");
  const bytes = (b) => {
    for (const [unit, size] of [["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 1024]])
      if (b >= size) return (b % size ? (b / size).toFixed(2) : b / size) + "\u00a0" + unit;
    return count(b) + "\u00a0B";
  };
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
  const clamp = (v, lo, hi) => Math.max(lo, Math.min(hi, v));

  // A canvas that is sharp on every screen, drawn again when its size or the theme changes.
  function surface(figure, height, draw) {
    const canvas = figure.querySelector("canvas"), pen = canvas.getContext("2d");
    const self = { canvas, pen, width: 0, height, draw: () => {
      const scale = window.devicePixelRatio || 1;
      self.width = canvas.clientWidth;
      canvas.style.height = self.height + "px";
      canvas.width = Math.round(self.width * scale);
      canvas.height = Math.round(self.height * scale);
      pen.setTransform(scale, 0, 0, scale, 0, 0);
      pen.font = "11px 'JetBrains Mono', ui-monospace, Menlo, Consolas, monospace";
      draw(pen);
    } };
    new ResizeObserver(() => { if (canvas.clientWidth !== self.width) self.draw(); }).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", self.draw);
    return self;
  }

  function hatch(pen, line, ground) {
    const tile = document.createElement("canvas"), size = 6, scale = 2;
    tile.width = tile.height = size * scale;
    const p = tile.getContext("2d");
    p.scale(scale, scale);
    if (ground) { p.fillStyle = ground; p.fillRect(0, 0, size, size); }
    p.strokeStyle = line;
    p.lineWidth = 1;
    for (const at of [-size, 0, size]) { p.beginPath(); p.moveTo(at - 1, size + 1); p.lineTo(at + size + 1, -1); p.stroke(); }
    const pattern = pen.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / scale));
    return pattern;
  }

  function tip(figure) {
    const box = figure.appendChild(el("div"));
    box.className = "tip";
    return {
      hide: () => { box.style.display = "none"; },
      show: (x, y, title, rows) => {
        box.replaceChildren(el("b", title), ...rows.map(([name, value]) => {
          const row = el("div");
          row.append(el("span", name), el("span", value));
          return row;
        }));
        box.style.display = "block";
        const right = x + 18 + box.offsetWidth > figure.clientWidth;
        box.style.left = clamp(right ? x - 18 - box.offsetWidth : x + 18, 0, Math.max(0, figure.clientWidth - box.offsetWidth)) + "px";
        box.style.top = Math.max(0, y - 12) + "px";
      },
    };
  }

  function tools(figure, acts) {
    const bar = figure.querySelector(".tools");
    return acts.map(([name, label, act]) => {
      const button = bar.appendChild(el("button", name));
      button.type = "button";
      button.setAttribute("aria-label", label);
      button.title = label;
      button.addEventListener("click", act);
      return button;
    });
  }

  const place = (event, canvas) => { const r = canvas.getBoundingClientRect(); return [event.clientX - r.left, event.clientY - r.top]; };

  function timeline(figure, t) {
    const left = 74, right = 12, top = 18, plot = 250;
    const lanes = (t.steps.length > 1 ? 1 : 0) + (t.phases.length ? 1 : 0);
    const total = t.at.length, [first, last] = t.range;
    let from = first, to = last, dimmed = null, drag = null, hover = null, shown = 0;
    const edge = t.axis === "event" ? (i) => first + ((last - first) * i) / total : (i) => (i >= total ? last : i ? t.at[i] : first);
    const sum = t.at.map((_, i) => t.stack.reduce((s, layer) => s + layer.values[i], 0));
    const high = sum.map((s, i) => t.lines.reduce((m, line) => Math.max(m, line.values[i]), s));
    const column = (x) => { // the column that a place of the axis is in
      let lo = 0, hi = total - 1;
      while (lo < hi) { const mid = (lo + hi + 1) >> 1; if (edge(mid) <= x) lo = mid; else hi = mid - 1; }
      return lo;
    };
    const seconds = (us) => us < 1000 ? us.toFixed(0) + " µs" : us < 1e6 ? (us / 1e3).toPrecision(3) + " ms" : (us / 1e6).toPrecision(4) + " s";
    const axisText = (x) => t.axis === "event" ? count(Math.round(x)) : seconds(x);
    const area = surface(figure, top + plot + 24 + lanes * 24, (pen) => {
      const width = area.width - left - right;
      const x = (v) => left + ((v - from) / (to - from)) * width;
      const at = (px) => from + ((px - left) / width) * (to - from);
      // The highest column of each pixel, so that no peak is lost.
      const pick = new Int32Array(Math.max(1, Math.floor(width)));
      shown = 1;
      for (let px = 0; px < pick.length; px++) {
        const a = column(at(left + px)), b = Math.max(a, Math.min(total - 1, column(at(left + px + 1) - 1e-9)));
        let best = a;
        for (let i = a; i <= b; i++) if (high[i] > high[best]) best = i;
        pick[px] = best;
        shown = Math.max(shown, high[best]);
      }
      const y = (b) => top + plot - (b / (shown * 1.06)) * plot;
      pen.fillStyle = colour("s2");
      pen.fillRect(left, top, width, plot);
      const unit = [2 ** 40, 2 ** 30, 2 ** 20, 1024, 1].find((u) => shown >= u) || 1;
      let step = unit;
      for (const f of [1 / 8, 1 / 4, 1 / 2, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512]) if ((shown / (unit * f)) <= 6) { step = unit * f; break; }
      pen.textAlign = "right";
      pen.textBaseline = "middle";
      for (let b = 0; b <= shown; b += step) {
        pen.fillStyle = colour("line");
        pen.fillRect(left, Math.round(y(b)), width, 1);
        pen.fillStyle = colour("text3");
        pen.fillText(bytes(b), left - 8, y(b));
      }
      const line = t.lines[0];
      if (line) { // what is reserved and not in use
        pen.fillStyle = hatch(pen, colour("line2"));
        for (let px = 0; px < pick.length; px++) {
          const above = line.values[pick[px]], below = sum[pick[px]];
          if (above > below) pen.fillRect(left + px, y(above), 1, y(below) - y(above));
        }
      }
      const base = new Float64Array(pick.length);
      t.stack.forEach((layer, n) => {
        pen.globalAlpha = dimmed !== null && dimmed !== n ? 0.22 : 1;
        pen.fillStyle = layer.colour === "cached" ? hatch(pen, colour("hatch")) : colour(layer.colour);
        for (let px = 0; px < pick.length; px++) {
          const v = layer.values[pick[px]];
          if (!v) continue;
          const y0 = Math.round(y(base[px])), y1 = Math.round(y(base[px] + v));
          base[px] += v;
          if (y0 > y1) pen.fillRect(left + px, y1, 1, y0 - y1);
        }
      });
      pen.globalAlpha = 1;
      t.lines.forEach((l) => {
        pen.strokeStyle = colour("text1");
        pen.lineWidth = 1.5;
        pen.beginPath();
        for (let px = 0; px < pick.length; px++) {
          const py = Math.round(y(l.values[pick[px]])) + 0.5;
          if (px) pen.lineTo(left + px, py); else pen.moveTo(left, py);
          pen.lineTo(left + px + 1, py);
        }
        pen.stroke();
      });
      const labelled = [];
      const kinds = [...t.marks].sort((a, b) => (b.kind === "oom") - (a.kind === "oom"));
      for (const m of kinds) {
        if (m.at < from || m.at > to) continue;
        const px = Math.round(x(m.at + (t.axis === "event" ? 0.5 : 0)));
        pen.fillStyle = colour(m.kind === "oom" ? "red" : "text3");
        pen.fillRect(clamp(px, left, left + width - 1), top - 4, 1, plot + 4);
        // A label that would lie on another is left out; the line stays.
        const long = pen.measureText(m.text).width + 8, flips = px + long > left + width, begin = flips ? px - long : px;
        if (labelled.some((l) => begin < l[1] && begin + long > l[0])) continue;
        labelled.push([begin, begin + long]);
        pen.textAlign = flips ? "right" : "left";
        pen.fillText(m.text, px + (flips ? -4 : 4), top - 10);
      }
      pen.fillStyle = colour("text3");
      const ticks = Math.max(2, Math.floor(width / 150));
      for (let i = 0; i <= ticks; i++) {
        const v = from + ((to - from) * i) / ticks;
        pen.textAlign = i === 0 ? "left" : i === ticks ? "right" : "center";
        pen.fillText(axisText(v), x(v), top + plot + 12);
      }
      let lane = top + plot + 24;
      const band = (a, b, fill, name) => {
        if (b <= from || a >= to) return;
        const p = Math.max(left, x(a)), q = Math.min(left + width, x(b));
        pen.fillStyle = fill;
        pen.fillRect(p, lane, Math.max(0.5, q - p - 1), 18);
        const room = q - p - 8;
        if (room > 12 && pen.measureText(name).width < room) {
          pen.fillStyle = colour("text2");
          pen.textAlign = "left";
          pen.fillText(name, p + 4, lane + 9.5);
        }
      };
      const title = (name) => { pen.textAlign = "right"; pen.fillStyle = colour("text3"); pen.fillText(name, left - 8, lane + 9.5); };
      if (t.steps.length > 1) {
        title("steps");
        for (let i = 0; i + 1 < t.steps.length; i++) band(t.steps[i], t.steps[i + 1], colour(i % 2 ? "s4" : "s3"), count(i + 1));
        lane += 24;
      }
      if (t.phases.length) {
        title("phases");
        const fill = { forward: "s3", backward: "s4", optimizer: "line2" };
        for (const [a, b, n] of t.phases) band(a, b, colour(fill[t.phase_names[n]] || "s2"), t.phase_names[n]);
      }
      if (drag && Math.abs(drag[1] - drag[0]) > 3) {
        pen.globalAlpha = 0.16;
        pen.fillStyle = colour("accent");
        pen.fillRect(Math.min(...drag), top, Math.abs(drag[1] - drag[0]), plot);
        pen.globalAlpha = 1;
      } else if (hover !== null) {
        const px = clamp(Math.round(hover), left, left + width - 1);
        pen.fillStyle = colour("text1");
        pen.fillRect(px, top, 1, area.height - top);
      }
    });
    const box = tip(figure);
    const width = () => area.width - left - right;
    const at = (px) => from + ((clamp(px, left, left + width()) - left) / width()) * (to - from);
    const least = t.axis === "event" ? Math.min(8, last - first) : (last - first) / 1e5;
    const look = (a, b) => {
      const span = clamp(b - a, least, last - first);
      from = clamp(a, first, last - span);
      to = from + span;
      buttons[1].disabled = buttons[2].disabled = to - from >= last - first;
      figure.dataset.window = Math.round(from) + "-" + Math.round(to);
      area.draw();
    };
    const zoom = (factor, x) => { const c = x === undefined ? (from + to) / 2 : x; look(c - (c - from) * factor, c + (to - c) * factor); };
    const buttons = tools(figure, [["+", "Zoom in", () => zoom(0.5)], ["−", "Zoom out", () => zoom(2)], ["Whole", "Show the whole recording", () => look(first, last)]]);
    const read = (px, py) => {
      const a = column(at(px)), b = Math.max(a, Math.min(total - 1, column(at(px + 1) - 1e-9)));
      let i = a;
      for (let n = a; n <= b; n++) if (high[n] > high[i]) i = n;
      const rows = t.lines.map((l) => [l.name, bytes(l.values[i])]);
      if (t.stack.length > 1) rows.push(["in use", bytes(sum[i])]);
      [...t.stack].reverse().forEach((l) => { if (l.values[i]) rows.push([l.name, bytes(l.values[i])]); });
      const e = t.at[i];
      if (t.axis === "event") {
        const s = t.steps.findIndex((x, n) => n + 1 < t.steps.length && e >= x && e < t.steps[n + 1]);
        if (s >= 0) rows.push(["step", count(s + 1)]);
        const p = t.phases.find(([x, y]) => e >= x && e < y);
        if (p) rows.push(["phase", t.phase_names[p[2]]]);
      }
      if (t.when[i]) rows.push(["time", t.when[i]]);
      box.show(px, py, t.axis === "event" ? "After event " + count(e) : axisText(e), rows);
    };
    const c = area.canvas;
    c.addEventListener("pointerdown", (e) => { if (e.button) return; const [x] = place(e, c); drag = [x, x]; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointermove", (e) => {
      const [x, y] = place(e, c);
      hover = x;
      if (drag) { drag[1] = clamp(x, left, left + width()); box.hide(); } else read(x, y);
      area.draw();
    });
    c.addEventListener("pointerup", () => {
      if (drag && Math.abs(drag[1] - drag[0]) > 3) { const [a, b] = [at(Math.min(...drag)), at(Math.max(...drag))]; drag = null; look(a, b); } else { drag = null; area.draw(); }
    });
    c.addEventListener("pointerleave", () => { hover = null; box.hide(); area.draw(); });
    c.addEventListener("dblclick", () => look(first, last));
    c.addEventListener("wheel", (e) => {
      if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, at(place(e, c)[0])); }
      else if (e.shiftKey) { e.preventDefault(); const d = ((e.deltaY || e.deltaX) / 600) * (to - from); look(from + d, to + d); }
    }, { passive: false });
    c.addEventListener("keydown", (e) => {
      const d = (to - from) / 10;
      const act = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), ArrowLeft: () => look(from - d, to - d), ArrowRight: () => look(from + d, to + d), Home: () => look(first, last) }[e.key];
      if (act) { e.preventDefault(); act(); }
    });
    const legend = figure.appendChild(el("div"));
    legend.className = "legend";
    const keys = t.stack.map((layer, n) => {
      const key = el("button"), dot = el("i");
      key.type = "button";
      dot.style.background = layer.colour === "cached" ? "repeating-linear-gradient(135deg, var(--hatch) 0 1px, transparent 1px 4px)" : "var(--" + layer.colour + ")";
      key.append(dot, layer.name);
      key.setAttribute("aria-pressed", "false");
      key.addEventListener("click", () => {
        dimmed = dimmed === n ? null : n;
        keys.forEach((k, m) => k.setAttribute("aria-pressed", String(dimmed === m)));
        area.draw();
      });
      legend.append(key);
      return key;
    });
    t.lines.forEach((l) => {
      const key = el("span"), dot = el("i");
      dot.className = "line";
      dot.style.background = "var(--text1)";
      key.append(dot, l.name);
      legend.append(key);
    });
    look(first, last);
  }

  function map(figure, m) {
    const pitch = 20, bar = 17, most = 22, head = m.request ? 26 : 0;
    const all = m.segments.reduce((s, x) => s + x.bytes, 0);
    let whole = 2 ** 20;
    while (Math.ceil(all / whole) > most - 2) whole *= 2;
    let row = whole, skip = 0, hover = null, drag = null;
    const cells = [];
    let start = 0;
    m.segments.forEach((s, n) => {
      let inside = 0;
      s.cells.forEach((c) => { cells.push([start + inside, c, n, inside]); inside += c[0]; });
      start += s.bytes;
    });
    const rows = () => Math.ceil(all / row);
    const kind = (c) => (c[1] === -1 ? "hole" : c[1] === -2 ? "waits for another stream" : m.roles[c[1]]);
    const find = (b) => { let lo = 0, hi = cells.length - 1; while (lo < hi) { const mid = (lo + hi + 1) >> 1; if (cells[mid][0] <= b) lo = mid; else hi = mid - 1; } return lo; };
    const area = surface(figure, 100, (pen) => {
      const free = hatch(pen, colour("hatch"), colour("s2")), waits = hatch(pen, colour("s1"), colour("other"));
      const scale = area.width / row;
      const piece = (at, size, act) => { // a stretch of bytes, cut into rows
        for (let b = at; b < at + size;) {
          const r = Math.floor(b / row), end = Math.min(at + size, (r + 1) * row);
          if (r >= skip && r < skip + most) act((b - r * row) * scale, head + (r - skip) * pitch, (end - b) * scale, end === at + size);
          b = end;
        }
      };
      if (m.request) {
        const long = m.request * scale;
        pen.fillStyle = colour("red");
        pen.fillRect(0, 4, Math.min(area.width, Math.max(2, long)), 14);
        const text = "the failed request, " + bytes(m.request) + ", to scale" + (long > area.width ? " (longer than a row)" : "");
        pen.textBaseline = "middle";
        const outside = pen.measureText(text).width + 10 < area.width - long;
        pen.fillStyle = outside ? colour("red") : colour("s1");
        pen.textAlign = "left";
        pen.fillText(text, outside ? long + 6 : 6, 11.5);
      }
      for (let i = find(skip * row); i < cells.length && cells[i][0] < (skip + most) * row; i++) {
        const [at, c, n] = cells[i];
        const ends = i + 1 === cells.length || cells[i + 1][2] !== n;
        piece(at, c[0], (x, y, w, last) => {
          pen.fillStyle = c[1] === -1 ? free : c[1] === -2 ? waits : colour(m.colours[c[1]]);
          const gap = last && ends ? 2 : w > 4 ? 1 : 0;
          pen.fillRect(x, y, Math.max(0.4, w - gap), bar);
        });
      }
      if (hover !== null) {
        pen.strokeStyle = colour("text1");
        pen.lineWidth = 1.5;
        piece(cells[hover][0], cells[hover][1][0], (x, y, w) => pen.strokeRect(x + 0.75, y + 0.75, Math.max(1, w - 1.5), bar - 1.5));
      }
    });
    const box = tip(figure);
    const look = (size, byte, line) => {
      row = clamp(size, 2 ** 12, whole);
      skip = clamp(Math.floor(byte / row) - line, 0, Math.max(0, rows() - most));
      area.height = head + Math.min(rows(), most) * pitch;
      buttons[1].disabled = buttons[2].disabled = row >= whole;
      scaleText.textContent = "one row is " + bytes(row) + (rows() > most ? ", rows " + count(skip + 1) + " to " + count(skip + most) + " of " + count(rows()) : "");
      figure.dataset.row = row;
      area.draw();
    };
    const spot = (e) => {
      const [x, y] = place(e, area.canvas), line = clamp(Math.floor((y - head) / pitch), 0, Math.min(rows(), most) - 1);
      return [clamp((line + skip) * row + (x / area.width) * row, 0, all - 1), line, x, y];
    };
    const middle = () => [(skip + Math.min(rows(), most) / 2) * row, Math.floor(Math.min(rows(), most) / 2)];
    const scaleText = figure.querySelector(".tools").appendChild(el("em"));
    const buttons = tools(figure, [["+", "Zoom in", () => look(row / 2, ...middle())], ["−", "Zoom out", () => look(row * 2, ...middle())], ["Whole", "Show all segments", () => look(whole, 0, 0)]]);
    const c = area.canvas;
    c.addEventListener("pointermove", (e) => {
      const [byte, , x, y] = spot(e);
      if (drag) { look(row, drag.byte, drag.line + Math.round((y - drag.y) / pitch)); box.hide(); return; }
      hover = find(byte);
      const [at, v, n, inside] = cells[hover], s = m.segments[n], rowsOf = [];
      rowsOf.push(["segment", (s.address ? s.address + ", " : "") + bytes(s.bytes)], ["begins at", bytes(inside)]);
      if (v[2] >= 0) rowsOf.push(["made by", m.places[v[2]]]);
      if (v[4] >= 0) rowsOf.push(["since event", count(v[4])]);
      if (v[3] > 1 && v[5]) rowsOf.push(["of it free", bytes(v[5])]);
      box.show(x, y, bytes(v[0]) + (v[3] > 1 ? " in " + count(v[3]) + " small blocks, mostly " : ", ") + kind(v), rowsOf);
      area.draw();
    });
    c.addEventListener("pointerleave", () => { hover = null; box.hide(); area.draw(); });
    c.addEventListener("pointerdown", (e) => { if (e.button || rows() <= most) return; const [byte, line, , y] = spot(e); drag = { byte, line, y }; c.setPointerCapture(e.pointerId); });
    c.addEventListener("pointerup", () => { drag = null; });
    c.addEventListener("dblclick", (e) => { const [byte, line] = spot(e); look(row / 2, byte, line); });
    c.addEventListener("wheel", (e) => {
      if (e.ctrlKey || e.metaKey) { e.preventDefault(); const [byte, line] = spot(e); look(e.deltaY > 0 ? row * 2 : row / 2, byte, line); }
    }, { passive: false });
    c.addEventListener("keydown", (e) => {
      const act = { "+": () => look(row / 2, ...middle()), "=": () => look(row / 2, ...middle()), "-": () => look(row * 2, ...middle()), Home: () => look(whole, 0, 0), ArrowDown: () => look(row, (skip + 1) * row, 0), ArrowUp: () => look(row, (skip - 1) * row, 0) }[e.key];
      if (act) { e.preventDefault(); act(); }
    });
    const legend = figure.appendChild(el("div"));
    legend.className = "legend";
    const there = new Set(cells.map(([, v]) => v[1]));
    [...m.roles.keys(), -2, -1].filter((r) => there.has(r)).forEach((r) => {
      const key = el("span"), dot = el("i");
      dot.style.background = r >= 0 ? "var(--" + m.colours[r] + ")" : "repeating-linear-gradient(135deg, var(--hatch) 0 1px, " + (r === -2 ? "var(--other)" : "transparent") + " 1px 4px)";
      key.append(dot, kind([0, r]));
      legend.append(key);
    });
    look(whole, 0, 0);
  }

  document.querySelectorAll("figure[data-picture]").forEach((figure) => {
    const one = data[figure.dataset.picture];
    if (one.timeline) timeline(figure, one.timeline); else map(figure, one.map);
  });
})();
