// Light or dark: the setting of the system, until the reader selects one.

const root = document.documentElement;

function isDark() {
  const chosen = root.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function switchTheme() {
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("holdfast-theme", root.dataset.theme);
  } catch {
    // Without storage the selection is valid for this page only.
  }
}

export function startTheme() {
  const button = document.querySelector("[data-theme-switch]");
  button.hidden = false;
  button.addEventListener("click", switchTheme);
}
