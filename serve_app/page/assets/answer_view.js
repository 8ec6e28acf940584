// One answer as it comes: its tokens, coloured by origin, and figures below.

import { element } from "./dom.js";
import { counted as plural, milliseconds, number, percent } from "./format.js";
import { ORIGINS, counted, figures, tallyFrom } from "./tally.js";

const SHOWN = [
  ["tokens_per_s", "tokens/s", (value) => number(value, 1)],
  ["acceptance", "accepted fraction", percent],
  ["bits_per_token", "bits/token", (value) => number(value)],
  ["first_token_ms", "time to first token", milliseconds],
];

/** A lane of the conversation: an answer under a title. */
export class AnswerView {
  tally = tallyFrom(performance.now());
  rounds = [];
  ids = [];
  text = "";

  constructor(title) {
    this.words = element("p", { class: "words" });
    this.outcome = element("p", { class: "outcome" });
    this.values = new Map(SHOWN.map(([name]) => [name, element("dd", {}, "–")]));
    const facts = SHOWN.map(([name, unit]) => element("div", {}, element("dt", {}, unit), this.values.get(name)));
    this.root = element(
      "section",
      { class: "lane", "aria-busy": "true", "aria-label": title },
      element("h4", {}, title),
      this.words,
      element("dl", { class: "figures" }, ...facts),
      this.outcome,
    );
  }

  /** Takes one stream event; returns whether anything was shown. */
  take(event) {
    const choice = event.choices[0];
    const details = choice?.outrider;
    if (!details?.tokens) return false;
    this.tally = counted(this.tally, details, performance.now());
    this.rounds.push(...details.rounds);
    for (const token of details.tokens) {
      this.ids.push(token.id);
      this.text += token.text;
      if (token.text) this.words.append(spanOf(token));
    }
    const now = figures(this.tally);
    for (const [name, , written] of SHOWN) this.values.get(name).textContent = written(now[name]);
    return true;
  }

  /** It is over; `told` says how if not in the usual way. */
  end(told = "", failed = false) {
    this.root.removeAttribute("aria-busy");
    const protocols = Object.entries(this.tally.by_protocol).map(([name, count]) => `${count} ${name}`);
    const made = `${plural(this.tally.tokens, "token")} in ${plural(this.tally.rounds, "round")}: ${protocols.join(", ")}`;
    this.outcome.textContent = told || made;
    if (failed) {
      this.outcome.className = "outcome failed";
      this.outcome.setAttribute("role", "alert");
    }
  }

  /** In one sentence, for those who do not see it. */
  spoken() {
    const { tokens_per_s, acceptance } = figures(this.tally);
    const words = [plural(this.tally.tokens, "token")];
    if (tokens_per_s !== null) words.push(`${number(tokens_per_s, 1)} tokens per second`);
    if (acceptance !== null) words.push(`${percent(acceptance)} of draft tokens accepted`);
    return words.join(", ");
  }
}

function spanOf(token) {
  return element("span", { class: `token ${token.origin}`, title: ORIGINS.get(token.origin) ?? token.origin }, token.text);
}

/** The legend, with the tokens of each origin. */
export function legendOf(tally) {
  return [...ORIGINS].map(([origin, name]) =>
    element(
      "li",
      { class: tally && !tally.by_origin[origin] ? "absent" : "" },
      element("span", { class: `token ${origin}` }, name),
      element("span", { class: "count" }, tally ? ` ${tally.by_origin[origin]}` : ""),
    ),
  );
}
