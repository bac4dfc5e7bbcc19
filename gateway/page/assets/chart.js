// Probabilities over time: lines, and bands between some of them.

import { clock, percent } from "./dom.js";

const HEIGHT = 190;
const DASHES = [[], [6, 4], [2, 3], [10, 3, 2, 3]];

// Times and lines of `data`; the first are thin `edges`, by label, the others `lines`, by label and number of a state.
export function chart(element, data, edges, lines, colour, bands) {
  element.replaceChildren();
  const value = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const line = (label, stroke, width, dash) => ({ label, stroke: value(stroke), width, dash, points: { show: false } });
  const axis = { stroke: value("--quiet"), grid: { stroke: value("--line"), width: 1 }, ticks: { show: false } };
  const observer = new ResizeObserver(() => { if (element.clientWidth > 0) made.setSize({ width: element.clientWidth, height: HEIGHT }); });
  const made = new uPlot({
    width: Math.max(200, element.clientWidth), height: HEIGHT, legend: { show: lines.at(-1)[1] > 0 }, cursor: { show: false },
    scales: { y: { range: [0, 1] } },
    series: [{}, ...edges.map((label) => line(label, "--quiet", 1, [3, 3])), ...lines.map(([label, i]) => line(label, i % 2 ? "--quiet" : colour, 2, DASHES[i % 4]))],
    bands: bands.map((series) => ({ series, fill: value(`${colour}-soft`) })),
    axes: [{ ...axis, values: (_, times) => times.map((time) => clock(time * 1000)), space: 90 }, { ...axis, values: (_, shares) => shares.map(percent), size: 52 }],
    hooks: { destroy: [() => observer.disconnect()] },
  }, data, element);
  observer.observe(element);
  return made;
}
