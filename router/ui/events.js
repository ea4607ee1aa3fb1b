// The log of what happened while the page was open.

import { byId, element, show } from "./dom.js";
import { clock } from "./format.js";
import { store } from "./store.js";

const KEPT = 200;

export function start() {
  const list = byId("events-list");
  const empty = byId("events-empty");
  const clear = () => {
    list.replaceChildren();
    show(empty, true);
    show(list, false);
  };
  byId("events-clear").addEventListener("click", clear);
  store.on("log", ({ model, text, tone }) => {
    const badge = element("span", { className: "state", textContent: text });
    badge.dataset.tone = tone ?? "";
    list.prepend(element("li", {}, element("time", { textContent: clock() }), `${model === "*" ? "all models" : model} `, badge));
    while (list.children.length > KEPT) list.lastElementChild.remove();
    show(empty, false);
    show(list, true);
  });
  clear();
}
