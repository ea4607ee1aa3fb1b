// What the page knows of the gateway. Views subscribe; nobody else keeps a copy.

/** Model entries as `GET /models` sends them, by id, and downloads. */
class Store extends EventTarget {
  models = new Map();
  downloads = [];

  setModels(entries) {
    this.models = new Map(entries.map((entry) => [entry.id, entry]));
    this.#changed("models");
  }

  /** Merge what an event says about one model; `status` is merged too. */
  patch(id, change) {
    const entry = this.models.get(id);
    if (!entry) return false;
    this.models.set(id, { ...entry, ...change, status: { ...entry.status, ...(change.status ?? {}) } });
    this.#changed("models");
    return true;
  }

  setDownloads(downloads) {
    this.downloads = downloads;
    this.#changed("downloads");
  }

  /** Something happened: `{at, model, text, tone}`. */
  log(event) {
    this.dispatchEvent(new CustomEvent("log", { detail: event }));
  }

  on(name, listener) {
    this.addEventListener(name, (event) => listener(event.detail));
  }

  #changed(name) {
    this.dispatchEvent(new CustomEvent(name));
  }
}

export const store = new Store();

/** The word for a model's state: llama-server's, or `failed`. */
export function stateOf(entry) {
  return entry.status?.failed ? "failed" : (entry.status?.value ?? "unloaded");
}

export const isResident = (entry) => ["loaded", "loading", "sleeping"].includes(stateOf(entry));
