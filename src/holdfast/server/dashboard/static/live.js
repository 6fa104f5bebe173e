// Updates a visible page: requests it again, and replaces the parts that have changed.

import { showTimes } from "./times.js";

// Pages that read files of state are requested less often, because they cost more.
const EVERY_MS = Number(document.body.dataset.every);
const SLOWEST_MS = 30000;

let tag = null;
let wait = EVERY_MS;
let timer = 0;

export function startLive(changed) {
  showTimes();
  setInterval(showTimes, 1000);
  if (!document.querySelector("[data-live]")) return;
  const pulse = document.querySelector("[data-pulse]");
  pulse.hidden = false;
  const look = async () => {
    timer = 0;
    if (document.hidden) return;
    try {
      const headers = { accept: "text/html" };
      if (tag) headers["if-none-match"] = tag;
      const answer = await fetch(location.href, { headers, cache: "no-store" });
      if (answer.redirected && new URL(answer.url).pathname === "/login") {
        location.assign(answer.url);
        return;
      }
      if (answer.status === 200) {
        tag = answer.headers.get("etag");
        replace(new DOMParser().parseFromString(await answer.text(), "text/html"), changed);
      } else if (answer.status !== 304) {
        throw new Error(String(answer.status));
      }
      wait = EVERY_MS;
      show(pulse, "live", true);
    } catch {
      wait = Math.min(wait * 2, SLOWEST_MS);
      show(pulse, "no answer", false);
    }
    timer = setTimeout(look, wait);
  };
  timer = setTimeout(look, EVERY_MS);
  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !timer) look();
    if (document.hidden) {
      clearTimeout(timer);
      timer = 0;
    }
  });
}

function show(pulse, text, good) {
  pulse.classList.toggle("lost", !good);
  const output = pulse.querySelector("[data-pulse-text]");
  if (output.textContent !== text) output.textContent = text;
}

function replace(fresh, changed) {
  for (const old of document.querySelectorAll("[data-live]")) {
    const next = fresh.getElementById(old.id);
    if (!next || busy(old)) continue;
    const before = old.served ?? null;
    old.served = next.innerHTML;
    if (before === old.served) continue;
    const kept = remember(old);
    old.replaceChildren(...next.childNodes);
    restore(old, kept);
    changed(old);
  }
  showTimes();
}

// A part with an open form, a chart being read or a selection is not replaced.
function busy(part) {
  if (part.querySelector(":popover-open, input:focus:not([type=checkbox]), .reading")) return true;
  const chosen = getSelection();
  return chosen && !chosen.isCollapsed && part.contains(chosen.anchorNode);
}

function remember(part) {
  const active = part.contains(document.activeElement) ? document.activeElement : null;
  return {
    open: [...part.querySelectorAll("details[open][data-keep]")].map((each) => each.dataset.keep),
    checked: [...part.querySelectorAll("input[type=checkbox]:checked")].map((each) => each.value),
    focus: active && address(active),
    scroll: [...part.querySelectorAll(".scroll")].map((each) => [each.scrollLeft, each.scrollTop]),
  };
}

function restore(part, kept) {
  for (const each of part.querySelectorAll("details[data-keep]")) each.open = kept.open.includes(each.dataset.keep);
  for (const each of part.querySelectorAll("input[type=checkbox]")) each.checked = kept.checked.includes(each.value);
  part.querySelectorAll(".scroll").forEach((each, index) => {
    if (kept.scroll[index]) [each.scrollLeft, each.scrollTop] = kept.scroll[index];
  });
  if (kept.focus) part.querySelector(kept.focus)?.focus({ preventScroll: true });
}

// Returns a selector that finds the focused element again after an update.
function address(element) {
  if (element.dataset.focus) return `[data-focus="${CSS.escape(element.dataset.focus)}"]`;
  const row = element.closest("tr[data-key]");
  if (row) {
    const tag = element === row ? "" : ` ${element.tagName.toLowerCase()}`;
    return `tr[data-key="${CSS.escape(row.dataset.key)}"]${tag}`;
  }
  const column = element.closest("th[data-sort]");
  if (column) return `th[data-sort]:nth-child(${column.cellIndex + 1}) button`;
  const href = element.getAttribute("href");
  return href ? `a[href="${CSS.escape(href)}"]` : null;
}
