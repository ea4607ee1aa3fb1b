// The cards of the models and what one can do with them.

import { post, remove } from "./api.js";
import { byId, confirmed, element, notice, reconcile, setText, show } from "./dom.js";
import { bytes, clock, count, percent, plural } from "./format.js";
import { rereadSoon } from "./live.js";
import { isResident, stateOf, store } from "./store.js";

const TONES = { loaded: "good", loading: "warn", downloading: "warn", failed: "bad" };
const ORDER = { loaded: 0, loading: 1, sleeping: 2, failed: 3, downloading: 4 };

export function start({ chatWith }) {
  const list = byId("models-list");
  const filter = byId("models-filter");
  const template = byId("model-card");
  const pending = new Set();

  async function act(id, name, call) {
    pending.add(id);
    render();
    try {
      await call();
    } catch (error) {
      notice(`${name} ${id}: ${error.message}`);
    } finally {
      pending.delete(id);
      rereadSoon();
      render();
    }
  }

  function make(entry) {
    const card = template.content.firstElementChild.cloneNode(true);
    const id = entry.id;
    const on = (selector, listener) => card.querySelector(selector).addEventListener("click", listener);
    on(".act-load", () => act(id, "Load", () => post("models/load", { model: id })));
    on(".act-unload", () => act(id, "Unload", () => post("models/unload", { model: id })));
    on(".act-pin", () =>
      act(id, "Pin", () => post("models/pin", { model: id, pin: !store.models.get(id)?.pinned })),
    );
    on(".act-chat", () => chatWith(id));
    on(".act-remove", async () => {
      if (await confirmed(`Delete ${id}?`, "Its files are removed from the cache on disk.", "Delete")) {
        act(id, "Delete", () => remove(`models?model=${encodeURIComponent(id)}`));
      }
    });
    return card;
  }

  function update(card, entry) {
    const state = stateOf(entry);
    const part = (selector) => card.querySelector(selector);
    const name = part(".name");
    setText(name, entry.id);
    const badge = part(".state");
    const progress = entry.status?.progress;
    const loading = state === "loading" || state === "downloading";
    setText(badge, loading && progress > 0 ? `${state} ${percent(progress)}` : state);
    badge.dataset.tone = TONES[state] ?? "";
    setText(part(".facts"), facts(entry));
    const reason = why(entry);
    setText(part(".reason"), reason);
    show(part(".reason"), Boolean(reason) && state !== "loaded");
    const bar = part(".load");
    show(bar, loading);
    if (loading) {
      if (progress > 0) bar.value = progress;
      else bar.removeAttribute("value");
      bar.setAttribute("aria-label", `${state} ${entry.id}`);
    }
    numbers(part(".numbers"), entry);
    const busy = pending.has(entry.id);
    button(part(".act-load"), !isResident(entry) && state !== "downloading", busy, `Load ${entry.id}`);
    button(part(".act-unload"), isResident(entry), busy, `Unload ${entry.id}`);
    const pin = part(".act-pin");
    button(pin, entry.pinned !== undefined, busy, `Pin ${entry.id}`);
    pin.setAttribute("aria-pressed", String(Boolean(entry.pinned)));
    setText(pin, entry.pinned ? "Pinned" : "Pin");
    button(part(".act-chat"), chats(entry), false, `Chat with ${entry.id}`);
    button(part(".act-remove"), Boolean(entry.can_remove), busy, `Delete ${entry.id}`);
  }

  function render() {
    const wanted = filter.value.trim().toLowerCase();
    const all = [...store.models.values()];
    const shown = all
      .filter((entry) => [entry.id, ...(entry.aliases ?? [])].some((name) => name.toLowerCase().includes(wanted)))
      .sort((a, b) => (ORDER[stateOf(a)] ?? 9) - (ORDER[stateOf(b)] ?? 9) || a.id.localeCompare(b.id));
    reconcile(list, shown, (entry) => entry.id, make, update);
    show(byId("models-empty"), all.length === 0);
    const resident = all.filter((entry) => stateOf(entry) === "loaded");
    const memory = resident.reduce((sum, entry) => sum + (entry.memory?.resident ?? 0), 0);
    setText(
      byId("models-summary"),
      all.length ? `${plural(all.length, "model")}, ${resident.length} loaded${memory ? `, ${bytes(memory)}` : ""}` : "",
    );
  }

  filter.addEventListener("input", render);
  store.on("models", render);
  render();
}

/** Why the model is not loaded, and when it will be tried again. */
function why({ status = {}, blocked }) {
  const again = status.retry_at > Date.now() / 1000 ? `next start at ${clock(status.retry_at)}` : "";
  return [status.reason || blocked, again].filter(Boolean).join("; ");
}

function button(node, visible, busy, label) {
  show(node, visible);
  node.disabled = busy;
  node.setAttribute("aria-label", label);
}

/** Whether one can talk to the model: embedders and rerankers answer with numbers. */
export function chats(entry) {
  return (entry.architecture?.output_modalities ?? ["text"]).includes("text");
}

function facts(entry) {
  const meta = entry.meta ?? {};
  const aliases = (entry.aliases ?? []).filter((alias) => alias !== entry.id);
  return [
    meta.n_params ? `${(meta.n_params / 1e9).toFixed(meta.n_params < 1e9 ? 2 : 1)} B parameters` : "",
    meta.ftype || "",
    meta.size ? bytes(meta.size) : "",
    meta.n_ctx ? `context ${count(meta.n_ctx)}` : "",
    aliases.length ? `also ${aliases.join(", ")}` : "",
  ]
    .filter(Boolean)
    .join(" · ");
}

function numbers(list, entry) {
  const rows = [];
  const { memory, slots, requests } = entry;
  if (isResident(entry)) {
    if (memory?.resident) rows.push(["Memory", bytes(memory.resident)]);
    if (slots?.total) rows.push(["Slots", `${slots.busy ?? 0} of ${slots.total}`]);
    if (stateOf(entry) === "loaded") rows.push(["Tokens/s", (entry.tokens_per_second ?? 0).toFixed(1)]);
  } else if (memory?.predicted) {
    rows.push(["Needs", bytes(memory.predicted)]);
  }
  if (requests?.waiting) rows.push(["Waiting", String(requests.waiting)]);
  reconcile(
    list,
    rows,
    ([label]) => label,
    ([label]) => element("div", {}, element("dt", { textContent: label }), element("dd")),
    (node, [, value]) => setText(node.lastElementChild, value),
  );
}
