// The page: who is asked, what is shown of the fleet, and what buttons do.

import { Api, ApiError } from "./api.js";
import { Charts } from "./charts.js";
import { Conversation } from "./conversation.js";
import { byId } from "./dom.js";
import { showFleet } from "./fleet_view.js";
import { extended } from "./history.js";
import { offer, tell } from "./settings.js";
import { TimelineView } from "./timeline_view.js";

const POLL_MS = 1500;
const WIDE = "(min-width: 80rem) and (min-height: 60rem)"; // where settings are in nobody's way

const api = new Api();
const charts = new Charts();
const timeline = new TimelineView();
const conversation = new Conversation(api, (rounds) => timeline.show(rounds), askForKey);
let history = {};
let offered = false;

/** Asks for a key, once. */
function askForKey(reason) {
  byId("key-button").hidden = false;
  byId("key-reason").textContent = reason;
  stands("Needs an API key", "away");
  if (!byId("key-dialog").open) byId("key-dialog").showModal();
}

function stands(text, kind) {
  const standing = byId("standing");
  if (standing.textContent !== text) standing.textContent = text;
  standing.dataset.kind = kind;
}

/** Looks at the fleet while somebody looks at the page. */
async function look() {
  if (!document.hidden && !byId("key-dialog").open) {
    try {
      if (!offered) {
        offer((await api.get("v1/models")).data);
        offered = true;
        byId("key-button").hidden = !api.key;
      }
      const view = await api.get(`page/fleet?after=${history.at_s?.at(-1) ?? 0}`);
      showFleet(view);
      history = extended(history, view.history);
      charts.show(history);
      const ready = view.coordinators.some((coordinator) => coordinator.verifier === "ready");
      stands(ready ? `${view.model} is ready` : `${view.model}: no verifier is ready`, ready ? "ready" : "away");
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      if (error.status === 401) askForKey(error.message);
      else stands(error.message, "away");
    }
  }
  setTimeout(look, POLL_MS);
}

function wire() {
  const prompt = byId("prompt");
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = prompt.value.trim();
    if (!text || conversation.busy) return;
    prompt.value = "";
    conversation.ask(text);
  });
  prompt.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });
  byId("ask").addEventListener("input", tell);
  byId("stop").addEventListener("click", () => conversation.stop());
  byId("clear").addEventListener("click", () => conversation.clear());
  byId("examples").addEventListener("click", (event) => {
    if (event.target.matches("button")) conversation.ask(event.target.textContent);
  });
  byId("key-button").addEventListener("click", () => byId("key-dialog").showModal());
  byId("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    api.key = byId("key").value.trim();
    offered = false;
    byId("key").value = "";
    byId("key-dialog").close();
  });
  byId("key-forget").addEventListener("click", () => {
    api.key = "";
    offered = false;
    byId("key-dialog").close();
  });
  byId("settings").open = matchMedia(WIDE).matches;
}

wire();
tell();
timeline.show([]);
look();
