// Light, dark, or as the system is.

import { byId } from "./dom.js";

const KEY = "llamaherd-theme";
const ORDER = ["", "light", "dark"];
const WORDS = { "": "Theme: system", light: "Theme: light", dark: "Theme: dark" };

export function start() {
  const button = byId("theme");
  const apply = (theme) => {
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    button.textContent = { "": "◐", light: "☀", dark: "☾" }[theme];
    button.setAttribute("aria-label", `${WORDS[theme]}. Change it.`);
    button.title = WORDS[theme];
  };
  let theme = localStorage.getItem(KEY) ?? "";
  if (!ORDER.includes(theme)) theme = "";
  apply(theme);
  button.addEventListener("click", () => {
    theme = ORDER[(ORDER.indexOf(theme) + 1) % ORDER.length];
    localStorage.setItem(KEY, theme);
    apply(theme);
  });
}
