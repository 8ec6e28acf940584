// The last minutes of the service, as columns that grow with each poll. Pure.

export const KEPT_S = 300;

/** Columns with newer ones behind them, and what is too old taken away. Each has `at_s`. */
export function extended(history, newer) {
  const joined = {};
  for (const [name, column] of Object.entries(newer)) joined[name] = [...(history[name] ?? []), ...column];
  const last_s = joined.at_s?.at(-1) ?? 0;
  const first = (joined.at_s ?? []).findIndex((at_s) => at_s >= last_s - KEPT_S);
  if (first <= 0) return joined;
  return Object.fromEntries(Object.entries(joined).map(([name, column]) => [name, column.slice(first)]));
}

/** The newest figure of a column that there is; null without any. */
export function newest(column) {
  return column?.at(-1) ?? null;
}
