// Tables of drafters, coordinators and faults.

import { byId, element, replaced } from "./dom.js";
import { counted, milliseconds, percent, rates } from "./format.js";

const FAULTS = new Map([
  ["drafter_losses", ["generation lost its drafter", "generations lost their drafter"]],
  ["verifier_losses", ["round lost with a verifier", "rounds lost with a verifier"]],
  ["pass_faults", ["pass failed", "passes failed"]],
  ["drafts_given_up", ["inexact round (draft lost)", "inexact rounds (draft lost)"]],
  ["corrections_given_up", ["inexact correction", "inexact corrections"]],
]);

/** Shows what `/page/fleet` answers. */
export function showFleet(view) {
  const ready = view.drafters.filter((drafter) => drafter.state === "ready").length;
  byId("fleet-note").textContent = `${ready} of ${counted(view.drafters.length, "drafter")} ready`;
  const links = linksOf(view.coordinators);
  replaced(byId("drafters"), view.drafters.map((drafter) => drafterRow(drafter, links.get(drafter.name))));
  replaced(byId("coordinators"), view.coordinators.map(coordinatorRow));
  replaced(byId("faults"), faultsOf(view.coordinators));
}

/** Each drafter's link, as the coordinator that sees it worst does. */
export function linksOf(coordinators) {
  const worst = new Map();
  for (const coordinator of coordinators) {
    for (const [name, link] of Object.entries(coordinator.links)) {
      if (!worst.has(name) || worst.get(name).rtt_s < link.rtt_s) worst.set(name, link);
    }
  }
  return worst;
}

/** Faults of all coordinators by kind, as texts. */
export function faultTexts(coordinators) {
  const sums = new Map();
  for (const coordinator of coordinators) {
    for (const [kind, count] of Object.entries(coordinator.faults)) sums.set(kind, (sums.get(kind) ?? 0) + count);
  }
  return [...sums].map(([kind, count]) => {
    const [one, many] = FAULTS.get(kind) ?? [kind, kind];
    return `${count} ${count === 1 ? one : many}`;
  });
}

function drafterRow(drafter, link) {
  const name = element("th", { scope: "row" }, drafter.name.replace(/^drafter-/, ""));
  return element(
    "tr",
    { "data-state": drafter.state },
    name,
    element("td", {}, stateOf(drafter.state, drafter.reason)),
    element("td", { class: "number" }, `${drafter.generations} / ${drafter.capacity}`),
    element("td", { class: "number" }, milliseconds(link && 1000 * link.rtt_s)),
    element("td", { class: "number" }, link ? rates(link.up_bps, link.down_bps) : "–"),
  );
}

function coordinatorRow(coordinator) {
  const { regime, kv } = coordinator;
  const queued = coordinator.queued_generations;
  return element(
    "tr",
    { "data-state": coordinator.verifier },
    element("th", { scope: "row" }, coordinator.id.slice(-6)),
    element("td", {}, stateOf(coordinator.verifier)),
    element("td", {}, modeOf(regime)),
    element("td", { class: "number" }, `${coordinator.generations}${queued ? ` + ${queued} queued` : ""}`),
    element("td", { class: "number" }, percent(kv && kv.used_blocks / Math.max(1, kv.total_blocks))),
  );
}

/** The speculation mode that is kept, and the one that is tried. */
function modeOf(tuner) {
  if (!tuner) return "–";
  return tuner.arm === tuner.kept ? tuner.kept : `${tuner.kept} (tries ${tuner.arm})`;
}

function stateOf(state, reason) {
  return element("span", { class: `state ${state}`, title: reason || null }, state);
}

function faultsOf(coordinators) {
  const texts = faultTexts(coordinators);
  return texts.length ? texts.map((text) => element("li", { class: "fault" }, text)) : [element("li", {}, "No faults since start")];
}
