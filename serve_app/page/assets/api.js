// The service's HTTP API: a key where one is needed, errors as its own messages.

import { EventReader } from "./sse.js";

const KEPT_AS = "outrider.key";

/** The service refuses, or cannot be reached (`status` 0). */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** Of the service that this page came from. */
export class Api {
  /** The key, kept until the tab is closed; empty: none. */
  get key() {
    return sessionStorage.getItem(KEPT_AS) ?? "";
  }

  set key(key) {
    if (key) sessionStorage.setItem(KEPT_AS, key);
    else sessionStorage.removeItem(KEPT_AS);
  }

  /** One JSON answer. */
  async get(path) {
    return (await this.#fetch(path, {})).json();
  }

  /** The events of a streamed response. An `AbortSignal` ends it. */
  async *stream(path, body, signal) {
    const headers = { "content-type": "application/json" };
    const answer = await this.#fetch(path, { method: "POST", headers, body: JSON.stringify(body), signal });
    const reader = new EventReader();
    const parts = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
      const { value, done } = await parts.read();
      if (done) throw new ApiError(0, "The answer ended in its middle; ask again.");
      for (const data of reader.push(value)) {
        if (data === "[DONE]") return;
        const event = JSON.parse(data);
        if (event.error) throw new ApiError(0, event.error.message);
        yield event;
      }
    }
  }

  async #fetch(path, request) {
    const headers = { ...request.headers, ...(this.key ? { authorization: `Bearer ${this.key}` } : {}) };
    let answer;
    try {
      answer = await fetch(path, { ...request, headers });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ApiError(0, "The service cannot be reached.");
    }
    if (!answer.ok) throw new ApiError(answer.status, await messageOf(answer));
    return answer;
  }
}

async function messageOf(answer) {
  try {
    return (await answer.json()).error.message;
  } catch {
    return `The service answers ${answer.status}.`;
  }
}
