// Light or dark: as the system has it, until somebody chooses.

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
    // It holds for this page then.
  }
}

export function startTheme() {
  const button = document.querySelector("[data-theme-switch]");
  button.hidden = false;
  button.addEventListener("click", switchTheme);
}
