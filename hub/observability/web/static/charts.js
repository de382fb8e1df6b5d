// The cursor of the charts: a line at one time in all charts, and the values of that time as text.
// By pointer, or with the arrow keys, Page Up and Down, Home and End on a chart; Escape takes it away.
"use strict";
(() => {
  const parsed = new WeakMap(); // plot → [text, data]
  let chosen = null; // time under the cursor, epoch ms; null: none
  const plotOf = (target) => (target instanceof Element ? target.closest(".plot") : null);
  const plots = () => document.querySelectorAll(".plot[data-chart]");

  function dataOf(plot) {
    const known = parsed.get(plot);
    if (known && known[0] === plot.dataset.chart) return known[1];
    const data = JSON.parse(plot.dataset.chart);
    data.count = Math.max(1, ...data.lines.map((line) => line.values.length));
    parsed.set(plot, [plot.dataset.chart, data]);
    return data;
  }

  // ---- texts: as hub/observability/format.py has them

  const UNKNOWN = "not known";
  function short(value) {
    for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return `${Number((value / size).toPrecision(3))}${unit}`;
    }
    return String(Number(value.toPrecision(3)));
  }
  function seconds(value) {
    if (value < 120) return `${Number(value.toPrecision(3))} s`;
    if (value < 7200) return `${(value / 60).toFixed(0)} min`;
    return value < 172800 ? `${(value / 3600).toFixed(1)} h` : `${(value / 86400).toFixed(0)} d`;
  }
  const bytes = (value) => short(value).replace(/([kMGT])?$/, (_, unit) => ` ${unit || ""}B`);
  const FORMATS = {
    "per second": (value) => `${short(value)}/s`,
    seconds,
    count: short,
    bytes,
    "bytes per second": (value) => `${bytes(value)}/s`,
    "percent of one core": (value) => `${value.toFixed(0)} %`,
  };

  function textAt(data, index) {
    const format = FORMATS[data.unit];
    const parts = data.lines.map(({ title, values }) => {
      const value = values[index];
      const error = data.error && data.error[index];
      const bound = value === null || !data.error ? "" : error === null ? " or more" : ` ± ${seconds(error)}`;
      return `${title} ${value === null || value === undefined ? UNKNOWN : format(value) + bound}`;
    });
    const time = new Date(data.start + index * data.step).toISOString();
    const day = data.step >= 3600000 ? `${time.slice(0, 10)} ` : "";
    return `${day}${time.slice(11, data.step < 60000 ? 19 : 16)} · ${parts.join(" · ")}`;
  }

  // ---- the cursor

  function draw(plot) {
    const data = dataOf(plot);
    const index = chosen === null ? -1 : Math.floor((chosen - data.start) / data.step);
    const inside = index >= 0 && index < data.count;
    const at = inside ? `${((index + 0.5) / data.count) * 100}%` : "0";
    const cursor = plot.querySelector(".cursor");
    cursor.setAttribute("x1", at);
    cursor.setAttribute("x2", at);
    cursor.setAttribute("visibility", inside ? "visible" : "hidden");
    const text = inside ? textAt(data, index) : "";
    plot.closest(".graph").querySelector(".readout").textContent = text;
    plot.setAttribute("aria-valuenow", String(inside ? index + 1 : data.count));
    plot.setAttribute("aria-valuetext", text || textAt(data, data.count - 1));
  }

  function choose(at) {
    chosen = at;
    plots().forEach(draw);
  }

  function point(event) {
    const plot = plotOf(event.target);
    if (!plot) return;
    const data = dataOf(plot);
    const box = plot.querySelector(".canvas").getBoundingClientRect();
    const share = Math.min(0.9999, Math.max(0, (event.clientX - box.left) / box.width));
    choose(data.start + Math.floor(share * data.count) * data.step);
  }

  document.addEventListener("pointermove", point);
  document.addEventListener("pointerdown", point);
  document.addEventListener("pointerout", (event) => {
    const plot = plotOf(event.target);
    if (plot && plotOf(event.relatedTarget) !== plot && plot !== document.activeElement) choose(null);
  });
  document.addEventListener("focusout", (event) => {
    if (plotOf(event.target)) choose(null);
  });
  document.addEventListener("keydown", (event) => {
    const plot = plotOf(event.target);
    if (!plot || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") return choose(null);
    const data = dataOf(plot);
    const now = chosen === null ? data.count : Math.floor((chosen - data.start) / data.step);
    const far = Math.max(1, Math.round(data.count / 10));
    const to = {
      ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1,
      PageDown: now - far, PageUp: now + far, Home: 0, End: data.count - 1,
    }[event.key];
    if (to === undefined) return;
    event.preventDefault();
    choose(data.start + Math.min(data.count - 1, Math.max(0, to)) * data.step);
  });
  // New points came: the cursor stays at its time.
  document.body.addEventListener("htmx:afterSwap", () => plots().forEach(draw));
})();
