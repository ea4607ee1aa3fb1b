// The live connection: one stream of events, and re-reading where an event does not say it all.

import { ApiError, getJson, request } from "./api.js";
import { events } from "./sse.js";
import { isResident, stateOf, store } from "./store.js";

const FIRST_RETRY = 500;
const LAST_RETRY = 15000;
const SILENCE = 45000;
const REREAD_GAP = 1000;
const LOOK_AGAIN = 3000;

let onState = () => {};
let controller = null;
let lastId = "";
let retry = FIRST_RETRY;
let timer = 0;
let live = false;

/** `listener("live" | "connecting" | "lost" | "locked", text)` follows the connection. */
export function start(listener) {
  onState = listener;
  document.addEventListener("visibilitychange", () => {
    // Timers sleep with a hidden page or a closed lid: look at once when it is seen again.
    if (!document.hidden) restart();
  });
  window.addEventListener("online", restart);
  // Slots and speeds change without an event: read again while somebody looks and something is in memory.
  setInterval(() => {
    if (live && !document.hidden && [...store.models.values()].some(isResident)) rereadSoon();
  }, LOOK_AGAIN);
  connect();
}

/** Connect anew, with the key of now. */
export function restart() {
  retry = FIRST_RETRY;
  controller?.abort();
  clearTimeout(timer);
  connect();
}

async function connect() {
  const mine = (controller = new AbortController());
  const watchdog = new Watchdog(SILENCE, () => mine.abort());
  onState("connecting", "connecting…");
  try {
    const response = await request("models/sse", {
      signal: mine.signal,
      headers: lastId ? { "Last-Event-ID": lastId } : {},
    });
    await reread();
    retry = FIRST_RETRY;
    live = true;
    onState("live", "live");
    for await (const event of events(response)) {
      watchdog.fed();
      if (event.data === undefined) continue;
      lastId = event.id || lastId;
      handle(JSON.parse(event.data));
    }
  } catch (error) {
    if (mine !== controller) return;
    if (error instanceof ApiError && (error.status === 401 || error.status === 403)) {
      onState("locked", error.status === 401 ? "key needed" : "this key may not watch");
      if (error.status === 403) await reread().catch(() => {});
      return;
    }
    if (error.name !== "AbortError" && !(error instanceof ApiError) && !(error instanceof TypeError)) {
      console.error(error);
    }
  } finally {
    if (mine === controller) live = false;
    watchdog.stop();
  }
  if (mine !== controller) return;
  onState("lost", `lost, trying again in ${Math.ceil(retry / 1000)} s`);
  timer = setTimeout(connect, retry * (0.75 + Math.random() / 2));
  retry = Math.min(LAST_RETRY, retry * 2);
}

/** Calls back when it was not fed for a while: a heartbeat is missing, so the connection is dead. */
class Watchdog {
  #timer = 0;
  constructor(after, bark) {
    this.after = after;
    this.bark = bark;
    this.fed();
  }
  fed() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(this.bark, this.after);
  }
  stop() {
    clearTimeout(this.#timer);
  }
}

let rereading = null;
let readAgain = false;
let lastRead = 0;

/** Read models and downloads. Calls that come together share one reading. */
export function reread() {
  if (rereading) {
    readAgain = true;
    return rereading;
  }
  rereading = (async () => {
    try {
      const models = await getJson("models");
      store.setModels(models.data);
      const downloads = await getJson("downloads").catch(ignoreRefusal);
      store.setDownloads(downloads?.data ?? []);
      store.dispatchEvent(new CustomEvent("read"));
    } finally {
      lastRead = Date.now();
      rereading = null;
    }
  })();
  return rereading;
}

/** A key without the scope, or a gateway without the route, shows less; other errors are errors. */
function ignoreRefusal(error) {
  if (error instanceof ApiError && [403, 404, 501].includes(error.status)) return null;
  throw error;
}

let soon = 0;

/** Read again before long, at most once a second. */
export function rereadSoon() {
  if (soon) return;
  soon = setTimeout(
    async () => {
      soon = 0;
      readAgain = false;
      await reread().catch(() => {});
      if (readAgain) rereadSoon();
    },
    Math.max(100, REREAD_GAP - (Date.now() - lastRead)),
  );
}

function handle({ model, event, data = {} }) {
  if (event === "snapshot") {
    if (data.models) store.setModels(data.models);
    if (data.downloads) store.setDownloads(data.downloads);
    return;
  }
  if (event === "status_change" || event === "model_status") {
    statusChanged(model, data);
  } else if (event === "download_progress") {
    rereadSoon();
    return;
  } else {
    store.log({ model, text: String(event).replaceAll("_", " "), tone: /fail|error/.test(event) ? "bad" : "" });
  }
  rereadSoon();
}

function statusChanged(model, data) {
  const before = store.models.get(model);
  const wasState = before ? stateOf(before) : "";
  const progress = data.progress?.value ?? data.progress;
  const known = store.patch(model, {
    status: {
      value: data.status,
      progress: typeof progress === "number" ? progress : undefined,
      stage: data.progress?.current,
      exit_code: data.exit_code,
      failed: data.failed ?? false,
      reason: data.reason ?? (data.status === "loaded" ? "" : before?.status?.reason),
    },
  });
  const now = known ? stateOf(store.models.get(model)) : data.status;
  if (now === wasState) return;
  const why = data.reason || (data.exit_code ? `exit code ${data.exit_code}` : "");
  const text = why.startsWith(now) ? why : why ? `${now}: ${why}` : now;
  store.log({ model, text, tone: now === "failed" ? "bad" : now === "loaded" ? "good" : "" });
}
