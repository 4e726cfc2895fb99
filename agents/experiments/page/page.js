"use strict";
// Draws the charts of a page. Colors are those of its style sheet, light or dark.
(() => {
  const charts = JSON.parse(document.getElementById("charts").textContent);
  const DASHES = [[], [8, 4], [2, 3], [8, 3, 2, 3]];
  const COLORS = 7;
  const drawn = new Map(); // Elements to plots.
  const hidden = new Set(); // Labels that the reader has switched off.

  function shorten(value) {
    for (const [size, suffix] of [[1e9, "B"], [1e6, "M"], [1e3, "k"]]) {
      if (Math.abs(value) >= size) return Number((value / size).toPrecision(4)) + suffix;
    }
    return String(Number(value.toPrecision(4)));
  }

  // Returns the index of the element of a sorted array that is nearest to a value.
  function nearest(sorted, value) {
    const next = sorted.findIndex((x) => x >= value);
    if (next <= 0) return next < 0 ? sorted.length - 1 : 0;
    return value - sorted[next - 1] < sorted[next] - value ? next - 1 : next;
  }

  function color(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function draw(element) {
    const chart = charts[element.dataset.chart];
    const plot = element.querySelector(".plot");
    const tables = [], bands = [], series = [{}];
    for (const line of chart.lines) {
      const stroke = color(`--line-${line.color % COLORS}`);
      const show = !hidden.has(line.label);
      const first = series.length;
      if (line.lower) {
        tables.push([line.x, line.upper, line.lower, line.mean]);
        bands.push({ series: [first, first + 1], fill: stroke + "30" });
        for (let edge = 0; edge < 2; edge++) {
          series.push({ label: line.label, show, points: { show: false } });
        }
      } else {
        tables.push([line.x, line.mean]);
      }
      const dash = DASHES[Math.floor(line.color / COLORS) % DASHES.length];
      const looks = line.faint
        ? { stroke: stroke + "80", width: 0.8, points: { show: false } }
        : { stroke, width: 1.8, points: { size: 5, fill: stroke } };
      series.push({ label: line.label, show, dash, ...looks });
    }
    const ink = color("--quiet"), grid = { stroke: color("--grid"), width: 1 };
    const ticks = { show: false }, font = "12px system-ui, sans-serif";
    const values = (_, splits) => splits.map(shorten);
    const axis = { stroke: ink, grid, ticks, font, values };
    const box = document.createElement("div");
    box.className = "values";
    const options = {
      width: plot.clientWidth,
      height: plot.clientHeight,
      legend: { show: false },
      cursor: { y: false, points: { show: false }, sync: { key: chart.unit } },
      scales: { x: { time: false } },
      axes: [{ ...axis, size: 30 }, { ...axis, size: 56 }],
      series,
      bands,
      hooks: {
        ready: [(self) => self.over.append(box)],
        setCursor: [(self) => explain(self, chart, box)],
      },
    };
    drawn.get(element)?.destroy();
    drawn.set(element, new uPlot(options, uPlot.join(tables), plot));
  }

  // Shows the values of all curves that are nearest to the cursor.
  function explain(plot, chart, box) {
    const { left } = plot.cursor;
    box.hidden = left < 0 || !plot.over.matches(":hover");
    if (box.hidden) return;
    const rows = [];
    for (const line of chart.lines) {
      if (line.faint || hidden.has(line.label)) continue;
      const index = nearest(line.x, plot.posToVal(left, "x"));
      let text = `${line.label}: ${shorten(line.mean[index])}`;
      if (line.lower) {
        text += ` (${shorten(line.lower[index])} to ${shorten(line.upper[index])})`;
      }
      const row = document.createElement("div");
      row.textContent = `${text} at ${shorten(line.x[index])}`;
      row.style.borderColor = `var(--line-${line.color % COLORS})`;
      rows.push(row);
    }
    box.replaceChildren(...rows);
    const right = left < plot.over.clientWidth / 2;
    box.style.left = right ? `${left + 12}px` : "";
    box.style.right = right ? "" : `${plot.over.clientWidth - left + 12}px`;
  }

  const elements = [...document.querySelectorAll("[data-chart]")];
  const drawAll = () => elements.forEach(draw);
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  let waiting;
  addEventListener("resize", () => {
    clearTimeout(waiting);
    waiting = setTimeout(drawAll, 150);
  });
  for (const key of document.querySelectorAll("button.key")) {
    key.addEventListener("click", () => {
      const { label } = key.dataset;
      const shown = hidden.delete(label);
      if (!shown) hidden.add(label);
      key.setAttribute("aria-pressed", shown);
      drawAll();
    });
  }
})();
