// Times in the reader's time zone; UTC is the title of each element.

export function showTimes() {
  const now = Date.now();
  for (const each of document.querySelectorAll("time[data-ms]")) {
    const ms = Number(each.dataset.ms);
    const text = "clock" in each.dataset ? local(ms, now) : ago(ms, now);
    if (text && each.textContent !== text) each.textContent = text;
  }
  document.querySelectorAll(".tick[data-ms]").forEach(showTick);
}

// The time, with the date before it where that is not today's.
export function local(ms, now = Date.now()) {
  const [day, time] = stamp(ms);
  return day === stamp(now)[0] ? time : `${day}\n${time}`;
}

// Labels of whole days move to midnight in the reader's time zone.
function showTick(tick) {
  const output = tick.querySelector("text");
  let ms = Number(tick.dataset.ms);
  if ("daily" in tick.dataset) {
    const start = Number(tick.parentElement.dataset.start);
    const end = Number(tick.parentElement.dataset.end);
    ms = new Date(ms).setHours(0, 0, 0, 0);
    tick.setAttribute("x", `${((ms - start) / (end - start)) * 100}%`);
    tick.toggleAttribute("hidden", ms < start);
  }
  const [day, time] = stamp(ms);
  const seconds = Number(tick.dataset.ms) % 60000 || output.textContent.length > 5;
  const text = time === "00:00:00" ? day.slice(5) : seconds ? time : time.slice(0, 5);
  if (output.textContent !== text) output.textContent = text;
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
