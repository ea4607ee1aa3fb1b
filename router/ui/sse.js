// Server-sent events read from a fetch response: EventSource cannot send the key.

/** Split text that comes in pieces into events `{id, event, data}`; comments are `{comment}`. */
export class EventParser {
  #rest = "";
  #id = "";

  push(text) {
    this.#rest += text;
    const events = [];
    let end;
    while ((end = /\r?\n\r?\n/.exec(this.#rest))) {
      const block = this.#rest.slice(0, end.index);
      this.#rest = this.#rest.slice(end.index + end[0].length);
      const event = this.#parse(block);
      if (event) events.push(event);
    }
    return events;
  }

  #parse(block) {
    const data = [];
    let name = "message";
    let comment = null;
    for (const line of block.split(/\r?\n/)) {
      if (line.startsWith(":")) {
        comment = line.slice(1).trim();
        continue;
      }
      const colon = line.indexOf(":");
      const field = colon < 0 ? line : line.slice(0, colon);
      const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
      if (field === "data") data.push(value);
      else if (field === "event") name = value;
      else if (field === "id") this.#id = value;
    }
    if (data.length) return { id: this.#id, event: name, data: data.join("\n") };
    return comment === null ? null : { comment };
  }
}

/** Every event of a response, until it ends. */
export async function* events(response) {
  const parser = new EventParser();
  for await (const text of texts(response)) yield* parser.push(text);
}

/** The decoded text of a response, piece by piece. */
export async function* texts(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield value;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
