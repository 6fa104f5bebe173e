// Before anything is drawn: the colours that somebody has chosen here, if he has.
try {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that remembers nothing goes by the system.
}
