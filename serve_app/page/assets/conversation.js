// The conversation: one answer at a time, and on demand the same one without drafts beside it.

import { AnswerView, legendOf } from "./answer_view.js";
import { ApiError } from "./api.js";
import { byId, element } from "./dom.js";
import { chatBody, compared, mayDiffer, withoutDrafts } from "./request.js";
import { settingsNow } from "./settings.js";
import { figures } from "./tally.js";

/** Of this page, over an API. `onRounds` is shown the rounds of the answer that is being made. */
export class Conversation {
  #api;
  #onRounds;
  #onRefused;
  #messages = [];
  #stopping = null;

  constructor(api, onRounds, onRefused) {
    this.#api = api;
    this.#onRounds = onRounds;
    this.#onRefused = onRefused;
    byId("legend").replaceChildren(...legendOf(null));
  }

  /** Whether an answer is being made. */
  get busy() {
    return this.#stopping !== null;
  }

  /** Ends the answer that is being made. */
  stop() {
    this.#stopping?.abort();
  }

  /** Forgets all of it. */
  clear() {
    this.stop();
    this.#messages = [];
    byId("talk").replaceChildren(byId("welcome") ?? this.welcome);
    byId("legend").replaceChildren(...legendOf(null));
    byId("clear").disabled = true;
    this.#onRounds([]);
  }

  /** Asks for an answer to a prompt. */
  async ask(prompt) {
    if (this.busy) return;
    this.welcome ??= byId("welcome");
    this.welcome.remove();
    const messages = [...this.#messages, { role: "user", content: prompt }];
    const body = chatBody(settingsNow(), messages);
    const view = new AnswerView("Answer");
    const lanes = element("div", { class: "lanes" }, view.root);
    const turn = element("article", { class: "turn", "aria-label": "Exchange" }, element("p", { class: "asked" }, prompt), lanes);
    byId("talk").append(turn);
    byId("clear").disabled = false;
    if (await this.#made(body, view)) {
      this.#messages = [...messages, { role: "assistant", content: view.text }];
      turn.append(this.#comparison(body, view, lanes));
      scrollToEnd();
    }
  }

  /** Streams an answer into its view; whether it has any text to go on from. */
  async #made(body, view) {
    const stopping = (this.#stopping = new AbortController());
    showBusy(true);
    this.#onRounds(view.rounds);
    scrollToEnd();
    try {
      for await (const event of this.#api.stream("v1/chat/completions", body, stopping.signal)) {
        if (!view.take(event)) continue;
        this.#onRounds(view.rounds);
        byId("legend").replaceChildren(...legendOf(view.tally));
        scrollToEnd();
      }
      view.end();
      byId("announcement").textContent = `Answer complete: ${view.spoken()}`;
      return true;
    } catch (error) {
      if (error.name === "AbortError") {
        view.end("Stopped");
        byId("announcement").textContent = `Answer stopped: ${view.spoken()}`;
        return view.text !== "";
      }
      view.end(error.message, true);
      if (error instanceof ApiError && error.status === 401) this.#onRefused(error.message);
      return false;
    } finally {
      this.#stopping = null;
      showBusy(false);
    }
  }

  #comparison(body, view, lanes) {
    const verdict = element("p", { class: "verdict", role: "status" });
    const button = element("button", { class: "quiet compare", type: "button" }, "Compare without drafts");
    const root = element("div", { class: "comparison" }, button, verdict);
    const warning = mayDiffer(body, view.tally);
    if (warning) verdict.textContent = warning;
    button.addEventListener("click", async () => {
      if (this.busy) return;
      button.disabled = true;
      view.root.querySelector("h4").textContent = "With drafts";
      const alone = new AnswerView("Without drafts");
      lanes.replaceChildren(view.root, alone.root);
      lanes.classList.add("two");
      if (await this.#made(withoutDrafts(body), alone)) verdict.textContent = verdictOf(view, alone, warning);
      this.#onRounds(view.rounds); // those of the answer itself, from now on
      byId("legend").replaceChildren(...legendOf(view.tally));
      button.disabled = false;
      button.textContent = "Compare again";
    });
    return root;
  }
}

function verdictOf(view, alone, warning) {
  const { same, of, equal } = compared(view.ids, alone.ids);
  if (equal) return `The same ${of} tokens, one by one${faster(view, alone)}.`;
  const found = `The first ${same} of ${of} tokens are the same.`;
  return warning ? `${found} ${warning}` : found;
}

function faster(view, alone) {
  const [fast, slow] = [view, alone].map((each) => figures(each.tally).tokens_per_s);
  return fast && slow ? `, ${(fast / slow).toFixed(1)} times as fast with drafts` : "";
}

function showBusy(busy) {
  const had = document.activeElement;
  byId("send").hidden = busy;
  byId("stop").hidden = !busy;
  if (busy && had === byId("send")) byId("stop").focus();
  if (!busy && had === byId("stop")) byId("prompt").focus();
}

/** Follows the text, unless the reader has gone back in it. */
function scrollToEnd() {
  const talk = byId("talk");
  const away = talk.scrollHeight - talk.scrollTop - talk.clientHeight;
  if (away < 160) talk.scrollTop = talk.scrollHeight;
}
