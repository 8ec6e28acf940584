// What is asked of the API, from what the form says. Pure.

/** The body of a chat. `settings` has the form's values as texts, empty ones left to the service. */
export function chatBody(settings, messages) {
  const outrider = { details: true };
  for (const name of ["protocol", "slo_class", "verification"]) {
    if (settings[name]) outrider[name] = settings[name];
  }
  if (settings.window !== "") outrider.window = Number(settings.window);
  if (settings.lookup !== "") outrider.lookup = settings.lookup === "true";
  const body = { model: settings.model, messages, stream: true, outrider };
  for (const name of ["temperature", "seed", "max_tokens"]) {
    if (settings[name] !== "") body[name] = Number(settings[name]);
  }
  return body;
}

/** The same, made by the verifier alone. */
export function withoutDrafts(body) {
  const { slo_class } = body.outrider;
  const outrider = { details: true, window: 0, lookup: false, verification: "lossless" };
  return { ...body, outrider: slo_class ? { ...outrider, slo_class } : outrider };
}

/**
 * Why the answer without drafts may differ from the one of this `tally`; null where it may not. An SLO class may allow
 * semantic verification, too: then tokens that the decision head accepted tell of it.
 */
export function mayDiffer(body, tally) {
  if (body.outrider.verification === "semantic" || tally.by_origin.override > 0) return "With semantic verification the answers may differ.";
  if (body.temperature !== 0 && body.seed === undefined) return "Sampled without a seed, the answers may differ.";
  return null;
}

/** Compares tokens: `same` is the length of the common front, `of` that of the longer answer. */
export function compared(one, two) {
  const of = Math.max(one.length, two.length);
  let same = 0;
  while (same < of && one[same] === two[same]) same += 1;
  return { same, of, equal: same === of };
}

/** The settings in a few words. */
export function inWords(settings) {
  const temperature = Number(settings.temperature);
  const words = [settings.temperature === "" ? "default sampling" : temperature ? `temperature ${temperature}` : "greedy"];
  if (settings.seed !== "") words.push(`seed ${settings.seed}`);
  words.push(settings.protocol || "automatic protocol");
  if (settings.window !== "") words.push(`window ${settings.window}`);
  if (settings.slo_class) words.push(settings.slo_class);
  if (settings.verification === "semantic") words.push("semantic");
  return words.join(" · ");
}
