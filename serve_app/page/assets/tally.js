// Counts and rates of an answer so far, from the tokens and rounds of its stream. Pure.

/** Origins of a token (docs/reference/glossary.md), in the order of the legend. */
export const ORIGINS = new Map([
  ["accepted", "Drafter"],
  ["lookup", "Prompt lookup"],
  ["correction", "Target, replacing a rejected token"],
  ["verifier", "Target, nothing rejected"],
  ["override", "Drafter, accepted by the decision head"],
]);

/** Empty tally of an answer asked for at `asked_ms`. */
export function tallyFrom(asked_ms) {
  const by_origin = Object.fromEntries([...ORIGINS.keys()].map((origin) => [origin, 0]));
  return {
    asked_ms, first_ms: null, last_ms: null, first_tokens: 0,
    tokens: 0, by_origin, rounds: 0,
    drafted: 0, accepted: 0, trimmed: 0, bits: 0, by_protocol: {},
  };
}

/** The tally after one event of its choice, received at `now_ms`. */
export function counted(tally, details, now_ms) {
  const next = { ...tally, by_origin: { ...tally.by_origin }, by_protocol: { ...tally.by_protocol } };
  for (const token of details.tokens) {
    next.by_origin[token.origin] = (next.by_origin[token.origin] ?? 0) + 1;
  }
  next.tokens += details.tokens.length;
  next.rounds += details.rounds.length;
  for (const round of details.rounds) {
    const protocol = round.protocol ?? "no draft";
    next.by_protocol[protocol] = (next.by_protocol[protocol] ?? 0) + 1;
    next.drafted += round.drafted_tokens;
    next.accepted += round.accepted_tokens;
    next.trimmed += round.trimmed_tokens;
    next.bits += round.payload_bits.up + round.payload_bits.down;
  }
  if (details.tokens.length) {
    if (next.first_ms === null) {
      next.first_ms = now_ms;
      next.first_tokens = details.tokens.length;
    }
    next.last_ms = now_ms;
  }
  return next;
}

/** Figures of a tally; null where undefined. */
export function figures(tally) {
  const after = tally.tokens - tally.first_tokens;
  const span_ms = tally.last_ms - tally.first_ms;
  return {
    first_token_ms: tally.first_ms === null ? null : tally.first_ms - tally.asked_ms,
    tokens_per_s: after > 0 && span_ms > 0 ? (1000 * after) / span_ms : null,
    acceptance: ratio(tally.accepted, tally.drafted - tally.trimmed),
    bits_per_token: ratio(tally.bits, tally.tokens),
  };
}

function ratio(part, whole) {
  return whole > 0 ? part / whole : null;
}
