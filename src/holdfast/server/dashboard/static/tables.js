// Tables that can be sorted by a column, filtered by a name, and used with the arrow keys.

const chosen = new Map(); // by table: the column, and which way

export function startTables() {
  for (const table of document.querySelectorAll("table")) prepare(table);
  for (const field of document.querySelectorAll("[data-filters]")) {
    field.addEventListener("input", () => {
      // The server has removed rows that do not match the name in the address: without a name they are needed.
      if (field.defaultValue && !field.value) field.form.requestSubmit();
      else filter(field);
    });
  }
}

export function sortAgain(part) {
  for (const table of part.querySelectorAll("table")) prepare(table);
  for (const field of document.querySelectorAll("[data-filters]")) filter(field);
}

function prepare(table) {
  if (table.matches("[data-sortable]")) {
    for (const head of table.querySelectorAll("th[data-sort]")) {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      button.addEventListener("click", () => choose(table, head.cellIndex));
      head.replaceChildren(button);
    }
    if (chosen.has(table.id)) sort(table);
  }
  if (table.matches("[data-keys]")) {
    const rows = [...table.tBodies[0].rows];
    rows.forEach((row, index) => (row.tabIndex = index === 0 ? 0 : -1));
    if (!table.listens) table.addEventListener("keydown", (event) => move(event, table));
    table.listens = true;
  }
}

function choose(table, column) {
  const now = chosen.get(table.id);
  const numbers = table.tHead.rows[0].cells[column].dataset.sort === "number";
  const down = now && now.column === column ? !now.down : numbers;
  chosen.set(table.id, { column, down });
  sort(table);
}

function sort(table) {
  const { column, down } = chosen.get(table.id);
  const heads = [...table.tHead.rows[0].cells];
  const numbers = heads[column].dataset.sort === "number";
  heads.forEach((head, index) => {
    if (index === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
    else head.removeAttribute("aria-sort");
  });
  const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent.trim();
  const rows = [...table.tBodies[0].rows];
  rows.sort((one, other) => {
    const order = numbers
      ? Number(value(one)) - Number(value(other))
      : value(one).localeCompare(value(other), undefined, { numeric: true });
    return down ? -order : order;
  });
  table.tBodies[0].append(...rows);
}

function filter(field) {
  const wanted = field.value.trim().toLowerCase();
  const table = document.getElementById(field.dataset.filters);
  if (!table) return;
  let shown = 0;
  for (const row of table.tBodies[0].rows) {
    row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
    if (!row.hidden) shown += 1;
  }
  document.querySelector(`[data-no-match="${field.dataset.filters}"]`).hidden = shown > 0;
}

function move(event, table) {
  const row = event.target.closest("tr");
  if (!row || row.parentElement !== table.tBodies[0]) return;
  if (event.key === "Enter" && event.target === row) {
    row.querySelector("a")?.click();
    return;
  }
  const rows = [...table.tBodies[0].rows].filter((each) => !each.hidden);
  const at = rows.indexOf(row);
  const next = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
  if (next === undefined || !rows[next] || event.target.matches("input, select, textarea")) return;
  event.preventDefault();
  for (const each of rows) each.tabIndex = -1;
  rows[next].tabIndex = 0;
  rows[next].focus();
}
