// Downloads with their bars, and the form that starts one.

import { post, remove } from "./api.js";
import { byId, confirmed, element, notice, reconcile, setText, show } from "./dom.js";
import { bytes, percent, seconds } from "./format.js";
import { rereadSoon } from "./live.js";
import { store } from "./store.js";

const RUNNING = new Set(["queued", "planning", "downloading", "verifying", "waiting"]);
const TONES = { failed: "bad", done: "good", cancelled: "", paused: "" };

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

function make({ id }) {
  const now = () => store.downloads.find((item) => item.id === id);
  const button = (name, listener) => {
    const node = element("button", { type: "button", className: `quiet ${name}` });
    node.addEventListener("click", () => {
      const item = now();
      if (item) listener(item);
    });
    return node;
  };
  return element(
    "li",
    {},
    element("div", { className: "row-line" }, element("span"), element("span", { className: "state" }), button("hold", hold), button("end", end)),
    element("progress", { max: 1 }),
    element("p", { className: "muted small" }),
  );
}

function update(node, item) {
  const [line, bar, facts] = node.children;
  const [name, state, holding, ending] = line.children;
  const running = RUNNING.has(item.state);
  const open = running || item.state === "paused";
  setText(name, item.reference);
  setText(state, item.state);
  state.dataset.tone = TONES[item.state] ?? "warn";
  label(holding, running ? "Pause" : "Resume", item);
  show(holding, open);
  label(ending, open ? "Cancel" : "Remove", item);
  show(ending, item.state !== "done");
  show(bar, open);
  bar.setAttribute("aria-label", `Download of ${item.reference}`);
  if (item.total) bar.value = item.done / item.total;
  else bar.removeAttribute("value");
  setText(facts, item.error?.message ?? [progress(item), item.reason].filter(Boolean).join(" · "));
}

function label(button, text, item) {
  setText(button, text);
  button.setAttribute("aria-label", `${text} ${item.reference}`);
}

function progress({ done = 0, total = 0, rate = 0, eta = 0 }) {
  const parts = [total ? `${bytes(done)} of ${bytes(total)} (${percent(done / total)})` : bytes(done)];
  if (rate) parts.push(`${bytes(rate)}/s`);
  if (eta > 0) parts.push(`${seconds(eta)} left`);
  return parts.join(" · ");
}

async function hold(item) {
  await attempt(item, () => post(`downloads/${RUNNING.has(item.state) ? "pause" : "resume"}`, { id: item.id }));
}

async function end(item) {
  const open = RUNNING.has(item.state) || item.state === "paused";
  if (!open && !(await confirmed(`Remove ${item.reference}?`, "What was downloaded so far is deleted.", "Remove"))) return;
  await attempt(item, () => remove(`downloads?id=${encodeURIComponent(item.id)}${open ? "" : "&purge=1"}`));
}

async function attempt(item, call) {
  try {
    await call();
  } catch (error) {
    notice(`${item.reference}: ${error.message}`);
  }
  rereadSoon();
}
