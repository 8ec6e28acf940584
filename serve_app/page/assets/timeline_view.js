// The rounds of the current response, drawn.

import { byId, drawn, element, replaced } from "./dom.js";
import { counted, milliseconds, number } from "./format.js";
import { LANES, MOST_ROUNDS, PHASES, barsOf, meansOf, ticksOf } from "./timeline.js";

const LANE = 18;
const LEFT = 74;
const AXIS = 18;

/** Draws rounds when they have changed, with the screen's next frame. */
export class TimelineView {
  #rounds = [];
  #due = false;

  constructor() {
    new ResizeObserver(() => this.show(this.#rounds)).observe(byId("timeline"));
  }

  /** Show these from now on. */
  show(rounds) {
    this.#rounds = rounds;
    if (this.#due) return;
    this.#due = true;
    requestAnimationFrame(() => {
      this.#due = false;
      this.#draw();
    });
  }

  #draw() {
    const rounds = this.#rounds;
    const parent = byId("timeline");
    const width = Math.max(200, parent.clientWidth);
    const { bars, from_ms, to_ms } = barsOf(rounds);
    const x = (ms) => LEFT + ((ms - from_ms) / Math.max(1e-3, to_ms - from_ms)) * (width - LEFT - 1);
    const height = LANES.length * LANE + AXIS;
    const lanes = LANES.map((name, lane) => [
      drawn("line", { class: "rail", x1: LEFT, x2: width, y1: (lane + 0.5) * LANE, y2: (lane + 0.5) * LANE }),
      drawn("text", { class: "lane-name", x: 0, y: (lane + 0.5) * LANE, "dominant-baseline": "central" }, name),
    ]);
    const ticks = ticksOf(from_ms, to_ms).map((at_ms) => [
      drawn("line", { class: "tick", x1: x(at_ms), x2: x(at_ms), y1: 0, y2: LANES.length * LANE }),
      drawn(
        "text",
        { class: "tick-name", x: x(at_ms), y: height - 4, "text-anchor": x(at_ms) > width - 24 ? "end" : "middle" },
        milliseconds(at_ms),
      ),
    ]);
    const boxes = bars.map((bar) =>
      drawn("rect", {
        class: `phase ${bar.phase}`,
        x: x(bar.from_ms).toFixed(2),
        y: bar.lane * LANE + 3,
        width: Math.max(0.5, x(bar.to_ms) - x(bar.from_ms) - 0.5).toFixed(2),
        height: LANE - 6,
        rx: 1.5,
      }),
    );
    parent.replaceChildren(
      drawn("svg", { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" }, ...ticks.flat(), ...lanes.flat(), ...boxes),
    );
    this.#tell(rounds);
  }

  #tell(rounds) {
    const means = meansOf(rounds);
    const shown = Math.min(MOST_ROUNDS, rounds.length);
    const note = rounds.length > shown ? `the last ${shown} of ${counted(rounds.length, "round")}` : counted(rounds.length, "round");
    byId("rounds-note").textContent = rounds.length ? note : "none yet";
    const spoken = [...means].filter(([, ms]) => ms).map(([phase, ms]) => `${PHASES.get(phase)?.name ?? phase} ${milliseconds(ms)}`);
    byId("timeline").setAttribute("aria-label", `Timeline of ${note}. A round's mean: ${spoken.join(", ") || "none"}`);
    const rows = [...means].map(([phase, ms]) =>
      element(
        "tr",
        {},
        element("th", { scope: "row" }, element("span", { class: `key ${phase}` }), PHASES.get(phase)?.name ?? phase),
        element("td", { class: "number" }, `${number(ms, 1)}${ms === null ? "" : " ms"}`),
      ),
    );
    replaced(byId("phases"), rows);
  }
}
