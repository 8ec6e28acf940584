// Figures as text; a dash stands for what there is none of. Pure.

const NONE = "–";

/** With so many decimals. */
export function number(value, decimals = 0) {
  return value === null || value === undefined ? NONE : value.toFixed(decimals);
}

/** A share, in per cent. */
export function percent(value) {
  return value === null || value === undefined ? NONE : `${Math.round(100 * value)} %`;
}

/** Milliseconds, as seconds where they are many. */
export function milliseconds(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1000) return `${(value / 1000).toFixed(2)} s`;
  return `${value.toFixed(value < 10 ? 1 : 0)} ms`;
}

/** Bits per second up and down, in the unit that leaves the fewest figures for the slower. */
export function rates(up_bps, down_bps) {
  const units = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s"];
  const least = Math.max(1, Math.min(up_bps, down_bps));
  const unit = Math.min(units.length - 1, Math.floor(Math.log10(least) / 3));
  const [up, down] = [up_bps, down_bps].map((bps) => (bps / 1000 ** unit).toPrecision(2)).map(Number);
  return `${up} / ${down} ${units[unit]}`;
}

/** `1 round`, `2 rounds`. */
export function counted(count, noun) {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
