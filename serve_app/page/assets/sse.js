// Server-sent events out of text that comes in pieces of any length. Pure.

/** Reads one stream. */
export class EventReader {
  #rest = "";

  /** Takes the next piece of text; returns the data of the events that it completes, comments left out. */
  push(text) {
    const events = (this.#rest + text.replaceAll("\r\n", "\n")).split("\n\n");
    this.#rest = events.pop();
    return events.map(dataOf).filter((data) => data !== null);
  }
}

/** The data of one event; null of one that has none. */
function dataOf(event) {
  const lines = event.split("\n").filter((line) => line.startsWith("data:"));
  return lines.length ? lines.map((line) => line.slice(5).replace(/^ /, "")).join("\n") : null;
}
