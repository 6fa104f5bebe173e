// Keyboard shortcuts; inactive while a field has the focus.

import { switchTheme } from "./switch.js";

let before = null;

export function startKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.matches("input, select, textarea")) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    if (before === "g" && event.key === "j") location.assign("/");
    else if (before === "g" && event.key === "a") location.assign("/ui/alerts");
    else if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) {
        event.preventDefault();
        field.focus();
        field.select();
      }
    } else if (event.key === "?") document.getElementById("help").togglePopover();
    else if (event.key === "t") switchTheme();
    else if (event.key === "ArrowDown" && event.target === document.body) {
      const row = document.querySelector("table[data-keys] tbody tr:not([hidden])");
      if (row) {
        event.preventDefault();
        row.focus();
      }
    }
    before = event.key;
  });
}
