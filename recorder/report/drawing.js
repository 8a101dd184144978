"use strict";
// What every page of a report draws with. Data goes into text nodes and attributes alone; nothing
// here makes markup of a string, and the page's own policy would refuse it.
const drawing = (() => {
  const $ = (selector, within = document) => within.querySelector(selector);
  const rehearsal = document.body.dataset.rehearsal === "yes";

  const element = (name, attributes = {}, ...children) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (key === "onclick" || key === "oninput" || key === "onchange") made.addEventListener(key.slice(2), value);
      else made.setAttribute(key, value === true ? "" : value);
    }
    for (const child of children.flat(3)) {
      if (child === null || child === undefined || child === false) continue;
      made.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return made;
  };

  const unpack = async () => {
    const bytes = Uint8Array.from(atob($("#data").textContent), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  const dollars = (value, digits = 2) => (value === null ? "unknown" : `$${value.toFixed(digits)}`);
  const seconds = (value) => (value === null ? "–" : `${value.toFixed(value < 100 ? 1 : 0)} s`);
  const percent = (value) => `${Math.round(value * 100)} %`;

  const drawn = new Map();
  const draw = (place, make) => {
    drawn.set(place, make);
    const width = Math.floor(place.clientWidth);
    if (width < 80) return;
    const chart = make(width);
    // One picture with one name: what it is made of has none of its own.
    chart.setAttribute("role", "img");
    for (const part of chart.querySelectorAll("[aria-label], [aria-description]")) {
      part.removeAttribute("aria-label");
      part.removeAttribute("aria-description");
    }
    place.replaceChildren(chart);
    place.dataset.width = width;
  };
  let pending = 0;
  addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(() => {
      for (const [place, make] of drawn) {
        if (!place.isConnected) drawn.delete(place);
        else if (place.clientWidth && String(place.clientWidth) !== place.dataset.width) draw(place, make);
      }
    }, 120);
  });
  const said = (text) => rehearsal ? `Rehearsal, not a measurement. ${text}` : text;
  const style = { fontSize: "12px", fontFamily: "inherit", background: "none", overflow: "visible" };
  const room = (names, width) => Math.min(width * 0.38, 12 + 7 * Math.max(4, ...names.map((name) => name.length)));

  return { $, rehearsal, element, unpack, dollars, seconds, percent, draw, said, style, room };
})();
