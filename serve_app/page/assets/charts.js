// Small charts of the last minutes, by uPlot (a script of its own, vendor/).

import { byId, element } from "./dom.js";
import { number, percent } from "./format.js";
import { KEPT_S, newest } from "./history.js";

const HEIGHT = 96;
const CHARTS = [
  { title: "Tokens/s", column: "tokens_per_s", colour: "--o-accepted", written: (value) => number(value, 1) },
  { title: "Accepted fraction", column: "accepted_fraction", colour: "--o-lookup", written: percent, top: 1 },
  { title: "Active responses", column: "running", colour: "--p-verify", written: (value) => number(value) },
  { title: "Verifiers busy", column: "verifiers_busy", colour: "--o-correction", written: percent, top: 1 },
];

/** All charts, drawn anew where the colours of the page change. */
export class Charts {
  #plots = [];
  #history = {};

  constructor() {
    const parent = byId("charts");
    for (const chart of CHARTS) {
      const value = element("output", {}, "–");
      const holder = element("div", { class: "plot", role: "img", "aria-label": chart.title });
      parent.append(element("figure", {}, element("figcaption", {}, element("span", {}, chart.title), value), holder));
      this.#plots.push({ chart, value, holder, plot: null });
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#redraw());
    new ResizeObserver(() => this.#fit()).observe(parent);
    this.#redraw();
  }

  /** Show these columns from now on. */
  show(history) {
    this.#history = history;
    for (const each of this.#plots) {
      each.plot.setData(this.#data(each.chart));
      const text = each.chart.written(newest(history[each.chart.column]));
      each.value.textContent = text;
      each.holder.setAttribute("aria-label", `${each.chart.title} over the last minutes, now ${text}`);
    }
  }

  get #last_s() {
    return this.#history.at_s?.at(-1) ?? Date.now() / 1000;
  }

  #data(chart) {
    return [this.#history.at_s ?? [], this.#history[chart.column] ?? []];
  }

  #redraw() {
    const style = getComputedStyle(document.documentElement);
    for (const each of this.#plots) {
      each.plot?.destroy();
      each.plot = new globalThis.uPlot(optionsOf(each, style, () => this.#last_s), this.#data(each.chart), each.holder);
    }
  }

  #fit() {
    for (const { plot, holder } of this.#plots) plot.setSize({ width: Math.max(80, holder.clientWidth), height: HEIGHT });
  }
}

function optionsOf({ chart, holder }, style, last_s) {
  const colour = style.getPropertyValue(chart.colour).trim();
  const muted = style.getPropertyValue("--muted").trim();
  const line = style.getPropertyValue("--line").trim();
  const axis = { stroke: muted, font: "11px system-ui, sans-serif", grid: { stroke: line, width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(80, holder.clientWidth),
    height: HEIGHT,
    padding: [6, 14, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: { time: true, range: () => [last_s() - KEPT_S, last_s()] },
      y: { range: (_, __, most) => [0, chart.top ?? Math.max(1, 1.15 * (most ?? 0))] },
    },
    axes: [
      { ...axis, size: 20, gap: 2, splits: () => minutesBefore(last_s()), values: (_, ticks) => ticks.map((tick) => ago(last_s() - tick)) },
      { ...axis, size: 34, gap: 4, space: 28, values: (_, ticks) => ticks.map((tick) => (chart.top ? `${Math.round(100 * tick)}%` : tick)) },
    ],
    series: [{}, { stroke: colour, width: 1.75, fill: `color-mix(in srgb, ${colour} 14%, transparent)`, points: { show: false }, spanGaps: false }],
  };
}

/** Every other whole minute before the last poll. */
function minutesBefore(last_s) {
  const times = [];
  for (let ago_s = KEPT_S - 60; ago_s >= 0; ago_s -= 120) times.push(last_s - ago_s);
  return times;
}

function ago(seconds) {
  return seconds < 1 ? "now" : `−${Math.round(seconds / 60)} min`;
}
