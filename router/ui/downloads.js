// Downloads with their bars, and the form that starts one.

import { post, remove } from "./api.js";
import { byId, confirmed, element, notice, reconcile, setText, show } from "./dom.js";
import { bytes, percent, seconds } from "./format.js";
import { rereadSoon } from "./live.js";
import { store } from "./store.js";

const RUNNING = new Set(["queued", "planning", "downloading", "verifying", "waiting"]);

export function start() {
  const form = byId("pull-form");
  const input = byId("pull-input");
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const model = input.value.trim();
    if (!model) return;
    const button = form.querySelector("button");
    button.disabled = true;
    try {
      await post("models", { model });
      input.value = "";
    } catch (error) {
      notice(`Pull ${model}: ${error.message}`);
    } finally {
      button.disabled = false;
      rereadSoon();
    }
  });
  store.on("downloads", render);
  render();
}

function render() {
  show(byId("downloads-empty"), store.downloads.length === 0);
  reconcile(byId("downloads-list"), store.downloads, (item) => item.id, make, update);
}

function make(item) {
  const cancel = element("button", { type: "button", className: "quiet" });
  cancel.addEventListener("click", () => end(store.downloads.find((other) => other.id === item.id) ?? item));
  return element(
    "li",
    {},
    element("div", { className: "row-line" }, element("span"), element("span", { className: "state" }), cancel),
    element("progress", { max: 1 }),
    element("p", { className: "muted small" }),
  );
}

function update(node, item) {
  const [line, bar, facts] = node.children;
  const [name, state, button] = line.children;
  const running = RUNNING.has(item.state);
  setText(name, item.reference);
  setText(state, item.state);
  state.dataset.tone = item.state === "failed" ? "bad" : item.state === "done" ? "good" : "warn";
  setText(button, running ? "Cancel" : "Remove");
  button.setAttribute("aria-label", `${running ? "Cancel" : "Remove"} ${item.reference}`);
  show(button, item.state !== "done");
  show(bar, running);
  bar.setAttribute("aria-label", `Download of ${item.reference}`);
  if (item.total) bar.value = item.done / item.total;
  else bar.removeAttribute("value");
  setText(facts, item.error?.message || item.reason || progress(item));
}

function progress({ done = 0, total = 0, rate = 0, eta = 0 }) {
  const parts = [total ? `${bytes(done)} of ${bytes(total)} (${percent(done / total)})` : bytes(done)];
  if (rate) parts.push(`${bytes(rate)}/s`);
  if (eta > 0) parts.push(`${seconds(eta)} left`);
  return parts.join(" · ");
}

async function end(item) {
  const running = RUNNING.has(item.state);
  if (!running && !(await confirmed(`Remove ${item.reference}?`, "What was downloaded so far is deleted.", "Remove"))) return;
  try {
    await remove(`downloads?id=${encodeURIComponent(item.id)}${running ? "" : "&purge=1"}`);
  } catch (error) {
    notice(`${item.reference}: ${error.message}`);
  }
  rereadSoon();
}
