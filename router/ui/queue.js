// Who waits and why, and what the scheduler decided.

import { ApiError, getJson } from "./api.js";
import { byId, element, reconcile, setText, show } from "./dom.js";
import { clock, plural, seconds } from "./format.js";
import { store } from "./store.js";

const SHOWN = 12;
const AGAIN = 2000;

export function start() {
  let timer = 0;

  async function read() {
    clearTimeout(timer);
    let queue;
    try {
      queue = await getJson("queue");
    } catch (error) {
      // Without the scope there is nothing to show; without a gateway the connection line says so.
      if (!(error instanceof ApiError)) throw error;
      return;
    }
    render(queue);
    // Waiting times grow without an event.
    if (queue.waiting?.length) timer = setTimeout(read, AGAIN);
  }

  store.on("read", read);
}

function render({ waiting = [], decisions = [] }) {
  setText(byId("queue-summary"), waiting.length ? `${plural(waiting.length, "request")} waiting` : "");
  show(byId("queue-empty"), waiting.length === 0);
  reconcile(
    byId("queue-list"),
    waiting.slice(0, 50),
    (item) => item.id,
    () => element("li", {}, element("div", { className: "row-line" }, element("span"), element("span")), element("p", { className: "muted small" })),
    (node, item) => {
      const [line, reason] = node.children;
      setText(line.children[0], item.model);
      setText(line.children[1], `waits ${seconds(item.waited_s)}`);
      setText(reason, item.reason ?? "");
    },
  );
  const latest = decisions.slice(-SHOWN).reverse();
  show(byId("decisions-empty"), latest.length === 0);
  reconcile(
    byId("decisions-list"),
    latest,
    (item) => `${item.at} ${item.model} ${item.decision}`,
    (item) => element("li", {}, element("time", { textContent: clock(item.at) }), `${item.model}: ${item.decision}. ${item.reason}`),
    () => {},
  );
}
