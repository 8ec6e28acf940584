// Rounds as bars on four lanes. Pure.

/** Phases of a round in their order, and the lane of each. */
export const PHASES = new Map([
  ["draft", { lane: 0, name: "Draft" }],
  ["link", { lane: 1, name: "Link" }],
  ["queue", { lane: 2, name: "Queue" }],
  ["verify", { lane: 2, name: "Verify" }],
  ["orchestration", { lane: 3, name: "Orchestration" }],
]);
export const LANES = ["Drafter", "Link", "Verifier", "Coordinator"];
export const MOST_ROUNDS = 32;

/**
 * The bars of the last rounds: `{phase, lane, from_ms, to_ms}`, and from when to when they reach.
 * What a drafter drafted during an autonomous run is a bar `beside`, which ends where the round's first phase begins.
 */
export function barsOf(rounds) {
  const bars = [];
  for (const round of rounds.slice(-MOST_ROUNDS)) {
    const phases = Object.entries(round.phases_ms);
    let at_ms = round.ended_ms - phases.reduce((sum, [, ms]) => sum + ms, 0);
    if (round.beside_ms) bars.push({ phase: "beside", lane: 0, from_ms: Math.max(0, at_ms - round.beside_ms), to_ms: at_ms });
    for (const [phase, ms] of phases) {
      bars.push({ phase, lane: PHASES.get(phase)?.lane ?? 3, from_ms: at_ms, to_ms: at_ms + ms });
      at_ms += ms;
    }
  }
  const from_ms = Math.min(...bars.map((bar) => bar.from_ms));
  const to_ms = Math.max(...bars.map((bar) => bar.to_ms));
  return bars.length ? { bars, from_ms, to_ms } : { bars, from_ms: 0, to_ms: 0 };
}

/** Mean milliseconds of a round in each phase, over all rounds; null of a phase that none had. */
export function meansOf(rounds) {
  const sums = new Map([...PHASES.keys()].map((phase) => [phase, 0]));
  for (const round of rounds) {
    for (const [phase, ms] of Object.entries(round.phases_ms)) sums.set(phase, (sums.get(phase) ?? 0) + ms);
  }
  return new Map([...sums].map(([phase, ms]) => [phase, ms ? ms / rounds.length : null]));
}

/** Axis ticks at round numbers between two times. */
export function ticksOf(from_ms, to_ms) {
  const span_ms = to_ms - from_ms;
  if (!(span_ms > 0)) return [];
  const rough = span_ms / 4;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  const ticks = [];
  for (let at = Math.ceil(from_ms / step) * step; at <= to_ms; at += step) ticks.push(at);
  return ticks;
}
