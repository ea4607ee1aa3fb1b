// The prompt for the API key.

import { getKey, setKey, whenUnauthorized } from "./api.js";
import { byId } from "./dom.js";

const FIRST_ASK = "This gateway asks for a key. It stays in this browser tab unless you let it be remembered.";

/** `onChange()` is called after the key was changed. */
export function start(onChange) {
  const dialog = byId("key-dialog");
  const input = byId("key-input");

  function ask(reason) {
    if (dialog.open) return;
    byId("key-reason").textContent = reason;
    input.value = getKey();
    dialog.returnValue = "cancel";
    dialog.showModal();
    input.select();
  }

  byId("key").addEventListener("click", () => ask("Used for every request of this page. Leave it empty to use none."));
  whenUnauthorized(() => ask(getKey() ? "The gateway does not know this key." : FIRST_ASK));
  // Enter would press the first button, which cancels.
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") {
      event.preventDefault();
      dialog.close("save");
    }
  });
  dialog.addEventListener("close", () => {
    if (dialog.returnValue !== "save") return;
    setKey(input.value.trim(), byId("key-remember").checked);
    onChange();
  });
}
