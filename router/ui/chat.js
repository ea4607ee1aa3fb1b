// A small chat: one conversation, streamed, with a stop button.

import { request } from "./api.js";
import { byId, element, setOptions, setText, show } from "./dom.js";
import { events } from "./sse.js";
import { chats } from "./models.js";
import { stateOf, store } from "./store.js";

export function start() {
  const log = byId("chat-log");
  const select = byId("chat-model");
  const input = byId("chat-input");
  const status = byId("chat-status");
  let history = [];
  let running = null;

  function models() {
    const entries = [...store.models.values()].filter(chats);
    entries.sort((a, b) => (stateOf(b) === "loaded") - (stateOf(a) === "loaded") || a.id.localeCompare(b.id));
    setOptions(select, entries.map((entry) => entry.id));
  }

  function setRunning(controller) {
    running = controller;
    show(byId("chat-send"), !controller);
    show(byId("chat-stop"), Boolean(controller));
  }

  function bubble(role, who) {
    const text = element("span", { className: "text" });
    const node = element("div", { className: "message" }, element("span", { className: "who", textContent: who }), text);
    node.dataset.role = role;
    log.append(node);
    scroll();
    return { node, text };
  }

  function scroll() {
    log.scrollTop = log.scrollHeight;
  }

  async function send(text) {
    const model = select.value;
    if (!model) {
      setText(status, "There is no model to talk to.");
      return;
    }
    bubble("user", "You").text.textContent = text;
    history.push({ role: "user", content: text });
    const answer = new Answer(bubble("assistant", model), scroll);
    const controller = new AbortController();
    setRunning(controller);
    setText(status, `${model} is asked…`);
    try {
      const response = await request("v1/chat/completions", {
        method: "POST",
        signal: controller.signal,
        headers: { Accept: "text/event-stream" },
        body: { model, messages: history, stream: true, stream_options: { include_usage: true } },
      });
      for await (const event of events(response)) {
        if (event.comment !== undefined) setText(status, event.comment ? `${model}: ${event.comment}` : status.textContent);
        else if (event.data !== "[DONE]") answer.take(JSON.parse(event.data));
      }
      setText(status, answer.summary());
    } catch (error) {
      if (error.name === "AbortError") {
        setText(status, "Stopped.");
      } else {
        answer.fail(error.message);
        setText(status, `Failed: ${error.message}`);
      }
    } finally {
      setRunning(null);
      if (answer.content) history.push({ role: "assistant", content: answer.content });
      else history.pop();
      input.focus();
    }
  }

  byId("chat-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    if (!text || running) return;
    input.value = "";
    send(text);
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      byId("chat-form").requestSubmit();
    } else if (event.key === "Escape") {
      running?.abort();
    }
  });
  byId("chat-stop").addEventListener("click", () => running?.abort());
  byId("chat-clear").addEventListener("click", () => {
    running?.abort();
    history = [];
    log.replaceChildren();
    setText(status, "");
    input.focus();
  });
  store.on("models", models);
  models();

  return {
    /** Choose a model and go to the message field. */
    chatWith(id) {
      setOptions(select, [...select.options].map((option) => option.value), id);
      byId("chat").scrollIntoView();
      input.focus({ preventScroll: true });
    },
  };
}

/** One answer as it grows. */
class Answer {
  content = "";
  #usage = null;
  #timings = null;
  #finish = "";
  #reasoning = null;

  constructor({ node, text }, scroll) {
    this.node = node;
    this.text = text;
    this.scroll = scroll;
  }

  take(chunk) {
    if (chunk.error) throw new Error(chunk.error.message ?? String(chunk.error));
    const choice = chunk.choices?.[0];
    if (choice?.delta?.reasoning_content) this.#reason(choice.delta.reasoning_content);
    if (choice?.delta?.content) {
      this.content += choice.delta.content;
      this.text.append(choice.delta.content);
      this.scroll();
    }
    this.#finish = choice?.finish_reason ?? this.#finish;
    this.#usage = chunk.usage ?? this.#usage;
    this.#timings = chunk.timings ?? this.#timings;
  }

  fail(message) {
    this.node.dataset.failed = "";
    this.text.append(`${this.content ? "\n\n" : ""}${message}`);
    this.scroll();
  }

  summary() {
    const parts = [];
    if (this.#usage) parts.push(`${this.#usage.completion_tokens} tokens`);
    if (this.#timings?.predicted_per_second) parts.push(`${this.#timings.predicted_per_second.toFixed(1)} tokens/s`);
    if (this.#finish === "length") parts.push("cut at the length limit");
    return parts.length ? `Done: ${parts.join(", ")}.` : "Done.";
  }

  #reason(text) {
    if (!this.#reasoning) {
      this.#reasoning = element("span");
      this.text.before(element("details", {}, element("summary", { textContent: "Reasoning" }), this.#reasoning));
    }
    this.#reasoning.append(text);
  }
}
