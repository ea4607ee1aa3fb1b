// Calls to the gateway, with the key, and with errors that can be shown.

const KEY = "llamaherd-key";

/** What the gateway answered instead of success. `status` 0: it could not be reached. */
export class ApiError extends Error {
  constructor(status, message, retryAfter = 0) {
    super(message);
    this.status = status;
    this.retryAfter = retryAfter;
  }
}

let onUnauthorized = () => {};

/** `listener(error)` is called for each answer that a (better) key would change. */
export function whenUnauthorized(listener) {
  onUnauthorized = listener;
}

export function getKey() {
  return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
}

export function setKey(key, remember) {
  sessionStorage.removeItem(KEY);
  localStorage.removeItem(KEY);
  if (key) (remember ? localStorage : sessionStorage).setItem(KEY, key);
}

/** Send a request. Resolves to the response if its status is good, else throws `ApiError`. */
export async function request(path, { method = "GET", body, signal, headers = {} } = {}) {
  const key = getKey();
  const options = { method, signal, headers: { ...headers }, cache: "no-store" };
  if (key) options.headers.Authorization = `Bearer ${key}`;
  if (body !== undefined) {
    options.headers["Content-Type"] = "application/json";
    options.body = JSON.stringify(body);
  }
  let response;
  try {
    response = await fetch(new URL(path, document.baseURI), options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "The gateway cannot be reached.");
  }
  if (response.ok) return response;
  const error = new ApiError(
    response.status,
    await messageOf(response),
    Number(response.headers.get("Retry-After")) || 0,
  );
  if (response.status === 401) onUnauthorized(error);
  throw error;
}

export async function getJson(path, signal) {
  return (await request(path, { signal })).json();
}

export async function post(path, body) {
  return (await request(path, { method: "POST", body })).json();
}

export async function remove(path) {
  await request(path, { method: "DELETE" });
}

async function messageOf(response) {
  try {
    const { error } = await response.json();
    return typeof error === "string" ? error : error.message;
  } catch {
    return `${response.status} ${response.statusText}`.trim();
  }
}
