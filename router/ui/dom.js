// Small helpers for building and updating elements. Text always goes in as text, never as markup.

export const byId = (id) => document.getElementById(id);

/** An element with properties set and children (strings or nodes) appended. */
export function element(name, properties = {}, ...children) {
  const node = Object.assign(document.createElement(name), properties);
  node.append(...children.filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

/** Set text only when it differs, so that selections and screen readers are left alone. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

export function show(node, visible) {
  node.hidden = !visible;
}

/**
 * Make the children of `parent` match `items`, keeping the nodes of items that stay (and with them the focus).
 * `make(item)` builds a node, `update(node, item)` brings it up to date.
 */
export function reconcile(parent, items, keyOf, make, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let node = old.get(key);
    if (node) {
      old.delete(key);
    } else {
      node = make(item);
      node.dataset.key = key;
    }
    update(node, item);
    if (node === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(node, place);
    }
  }
  for (const node of old.values()) node.remove();
}

/** Make the options of a select match `names`; the choice stays where it still exists. */
export function setOptions(select, names, chosen) {
  const wanted = chosen ?? select.value;
  const same = select.options.length === names.length && names.every((name, i) => select.options[i].value === name);
  if (!same) select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(wanted)) select.value = wanted;
}

/** Ask before something that cannot be undone. Resolves to whether it was confirmed. */
export function confirmed(title, text, action) {
  const dialog = byId("confirm-dialog");
  byId("confirm-title").textContent = title;
  byId("confirm-text").textContent = text;
  byId("confirm-ok").textContent = action;
  dialog.returnValue = "cancel";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}

let noticeTimer = 0;

/** Show what went wrong at the top of the page, for a while. */
export function notice(message) {
  const node = byId("notice");
  clearTimeout(noticeTimer);
  node.textContent = message;
  show(node, Boolean(message));
  if (message) noticeTimer = setTimeout(() => show(node, false), 12000);
}
