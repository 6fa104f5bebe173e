// Shows the value of a point of a chart: the one under the pointer, or the one chosen with the arrow keys.

import { local } from "./times.js";

export function startCharts() {
  document.addEventListener("pointermove", (event) => {
    const hit = event.target.closest?.(".hit, .marker");
    for (const other of document.querySelectorAll(".chart.reading")) {
      if (!hit || !other.contains(hit)) forget(other);
    }
    if (hit) read(hit);
  });
  document.addEventListener("pointerleave", () => document.querySelectorAll(".chart.reading").forEach(forget));
  document.addEventListener("focusout", (event) => {
    const chart = event.target.closest?.(".chart");
    if (chart) forget(chart);
  });
  document.addEventListener("keydown", (event) => {
    const plot = event.target.closest?.(".plot");
    if (!plot || !["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
    event.preventDefault();
    const hits = [...plot.querySelectorAll(".hit")];
    const now = hits.findIndex((each) => each.classList.contains("on"));
    const from = now < 0 ? hits.length : now;
    const next = { ArrowLeft: from - 1, ArrowRight: now < 0 ? hits.length - 1 : from + 1, Home: 0, End: hits.length - 1 };
    const hit = hits[Math.min(Math.max(next[event.key], 0), hits.length - 1)];
    if (hit) read(hit);
  });
}

function read(hit) {
  const chart = hit.closest(".chart");
  chart.classList.add("reading");
  for (const other of chart.querySelectorAll(".hit.on")) other.classList.remove("on");
  hit.classList.add("on");
  const text = hit.querySelector("title").textContent;
  chart.querySelector("[data-readout]").textContent = hit.dataset.ms ? `${text.split(" · ")[0]} · ${local(Number(hit.dataset.ms))}` : text;
}

function forget(chart) {
  chart.classList.remove("reading");
  for (const other of chart.querySelectorAll(".hit.on")) other.classList.remove("on");
  const output = chart.querySelector("[data-readout]");
  output.textContent = output.dataset.newest;
}
