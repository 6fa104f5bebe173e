// Keeps a page true while it is looked at: asks for it again, and puts in what is different.

// Pages that are read off files of state are asked for less often: it costs more.
const EVERY_MS = Number(document.body.dataset.every);
const SLOWEST_MS = 30000;

let tag = null;
let wait = EVERY_MS;
let timer = 0;

export function startLive(changed) {
  tellTimes();
  setInterval(tellTimes, 1000);
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
  const place = pulse.querySelector("[data-pulse-text]");
  if (place.textContent !== text) place.textContent = text;
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
  tellTimes();
}

// Nobody wants the form that he fills in, or the chart that he reads, taken from under his hands.
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

// Where the focus was, so that it is found again in what has come.
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

// Times are told by how long ago they were, which changes by itself.
function tellTimes() {
  const now = Date.now();
  for (const each of document.querySelectorAll("time[data-ms]")) {
    const ms = Number(each.dataset.ms);
    const text = "clock" in each.dataset ? local(ms, now) : ago(ms, now);
    if (text && each.textContent !== text) each.textContent = text;
  }
}

// In the reader's zone, with the date where it is not today's, on a line of its own where there is little room.
// UTC is the element's title.
function local(ms, now) {
  const [day, time] = stamp(ms);
  return day === stamp(now)[0] ? time : `${day}\n${time}`;
}

function stamp(ms) {
  const at = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
  return [day, `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`];
}

function ago(ms, now) {
  const seconds = (now - ms) / 1000;
  if (seconds < -1) return null;
  if (seconds < 2) return "just now";
  for (const [length, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
    if (seconds >= length) return `${Math.floor(seconds / length)} ${unit} ago`;
  }
  return `${Math.floor(seconds)} s ago`;
}
