// Forms: a form is sent once, and a button is disabled until its selection is complete.

export function startForms() {
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method === "get") return;
    if (form.sent) event.preventDefault();
    form.sent = true;
    setTimeout(() => (form.sent = false), 5000);
  });
  document.addEventListener("change", (event) => {
    if (event.target.matches("[data-submits]")) {
      const key = event.target.form.elements.key;
      if (key) key.value = "";
      event.target.form.requestSubmit();
    }
    updateButtons();
  });
  updateButtons();
}

function updateButtons() {
  for (const button of document.querySelectorAll("[data-needs]")) {
    const picked = document.querySelectorAll(`input[name="${button.dataset.needsOf}"]:checked`).length;
    button.disabled = picked !== Number(button.dataset.needs);
  }
}
