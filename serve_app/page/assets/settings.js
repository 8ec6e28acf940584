// The form of the settings: filled from what the service offers, read as texts.

import { byId, element } from "./dom.js";
import { inWords } from "./request.js";

const NAMES = ["model", "temperature", "seed", "max_tokens", "protocol", "window", "lookup", "slo_class", "verification"];

/** What the form says. */
export function settingsNow() {
  const fields = byId("ask").elements;
  return Object.fromEntries(NAMES.map((name) => [name, fields[name].value.trim()]));
}

/** Offers what the served models have; what was chosen before stays where it is still there. */
export function offer(models) {
  const fields = byId("ask").elements;
  choices(fields.model, models.map((model) => [model.id, model.id]));
  const { max_window, protocols, slo_classes } = models[0].outrider;
  choices(fields.protocol, [["", "Automatic"], ...protocols.map((name) => [name, name])]);
  const classes = Object.entries(slo_classes).map(([name, speed]) => [name, speed ? `${name} (${speed} tokens/s)` : name]);
  choices(fields.slo_class, [["", "Default"], ...classes]);
  fields.window.max = max_window;
  fields.max_tokens.max = models[0].max_model_len - 1;
  tell();
}

/** Says in the summary what is set. */
export function tell() {
  byId("settings-summary").textContent = inWords(settingsNow());
}

function choices(select, offered) {
  const before = select.value;
  select.replaceChildren(...offered.map(([value, text]) => element("option", { value }, text)));
  if (offered.some(([value]) => value === before)) select.value = before;
}
