// Applies the colours that the reader has selected, before the page is drawn.
try {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // Without storage the setting of the system is used.
}
