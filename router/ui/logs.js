// The last lines of a worker, followed while the section is in use.

import { request } from "./api.js";
import { byId, setOptions, setText } from "./dom.js";
import { texts } from "./sse.js";
import { store } from "./store.js";

const KEPT = 200_000;

export function start() {
  const select = byId("logs-model");
  const follow = byId("logs-follow");
  const output = byId("logs-text");
  let controller = null;

  async function read() {
    controller?.abort();
    const model = select.value;
    if (!model) return;
    const mine = (controller = new AbortController());
    setText(output, "");
    try {
      const query = `model=${encodeURIComponent(model)}${follow.checked ? "&follow=1" : ""}`;
      const response = await request(`logs?${query}`, { signal: mine.signal });
      for await (const text of texts(response)) append(text);
    } catch (error) {
      if (error.name !== "AbortError") append(`\n[${error.message}]\n`);
    }
  }

  function append(text) {
    const atEnd = output.scrollTop + output.clientHeight >= output.scrollHeight - 20;
    output.append(text);
    if (output.textContent.length > KEPT) output.textContent = output.textContent.slice(-KEPT / 2);
    if (atEnd) output.scrollTop = output.scrollHeight;
  }

  select.addEventListener("change", read);
  follow.addEventListener("change", read);
  store.on("models", () => setOptions(select, ["", ...store.models.keys()]));
}
