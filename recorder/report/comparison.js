"use strict";
// The charts of a comparison: A in the first colour of the report, B in the second.
(async () => {
  const { unpack, dollars, seconds, percent, draw, said, style, room } = drawing;
  const data = await unpack();
  const SIDES = ["A", "B"];
  const color = { domain: SIDES, range: ["var(--s1)", "var(--s2)"] };
  const nameOf = (group) => [group.probe, group.tier, group.arm].filter(Boolean).join(", ");
  const points = (value) => `${value > 0 ? "+" : ""}${Math.round(value * 100)} points`;

  // Both rates of a group, and under them how far apart they are.
  const rateChart = (number) => (width) => {
    const rates = data.rates.filter((rate) => rate.group === number);
    const what = [...new Set(rates.map((rate) => rate.what))];
    const both = rates.flatMap((rate) => SIDES.map((side) => ({ what: rate.what, side, ...rate[side.toLowerCase()] })))
      .filter((share) => share.low !== null).map((share) => ({ ...share, rate: share.count / share.total }));
    const narrow = width < 620;
    const margin = narrow ? 8 : room(what, width);
    return Plot.plot({
      className: "chart", width, style, color,
      ariaLabel: said(`Rates of ${nameOf(data.groups[number])} on both sides, with Wilson's 95 % intervals; the table below holds the same.`),
      marginLeft: margin, marginRight: 92, marginTop: narrow ? 22 : 26, marginBottom: narrow ? 26 : 8,
      height: (narrow ? 50 : 34) + what.length * (narrow ? 74 : 60),
      x: { domain: [0, 1], axis: narrow ? "bottom" : "top", tickFormat: (value) => `${Math.round(value * 100)} %`, ticks: narrow ? 3 : 6, label: null, grid: true },
      y: { domain: SIDES, axis: null, type: "point", padding: 0.6 },
      fy: { domain: what, label: null, axis: null, padding: narrow ? 0.35 : 0.15 },
      marks: [
        Plot.text(what, narrow
          ? { fy: (d) => d, text: (d) => d, frameAnchor: "top-left", dy: -13, fontWeight: 600, lineWidth: 40, textOverflow: "ellipsis" }
          : { fy: (d) => d, text: (d) => d, frameAnchor: "left", textAnchor: "end", dx: -10, lineWidth: margin / 13, textOverflow: "ellipsis" }),
        Plot.frame({ anchor: "left", stroke: "currentColor", strokeOpacity: 0.35 }),
        Plot.ruleY(both, { fy: "what", y: "side", x1: "low", x2: "high", stroke: "side", strokeWidth: 3, strokeOpacity: 0.45 }),
        Plot.dot(both, { fy: "what", y: "side", x: "rate", fill: "side", r: 4.5,
          title: (d) => `${d.side}, ${d.what}: ${d.count} of ${d.total}\n${percent(d.low)} to ${percent(d.high)}`, tip: { fill: "var(--panel)" } }),
        Plot.text(both, { fy: "what", y: "side", x: 1, dx: 8, textAnchor: "start", fill: "currentColor", text: (d) => `${d.side} ${d.count} of ${d.total}` }),
        Plot.text(rates.filter((rate) => rate.difference !== null), { fy: "what", frameAnchor: "bottom-right", dx: 8, dy: 2, textAnchor: "start", fill: "currentColor", fontWeight: 600, text: (d) => points(d.difference) }),
      ],
    });
  };

  const sideChart = (member) => (width) => {
    const rows = data.points.filter((point) => point[member] !== null).map((point) => ({ side: point.side, value: point[member], session: point.session, group: point.group }));
    const names = data.groups.map(nameOf);
    const shown = rows.map((row) => ({ ...row, name: names[row.group] }));
    const show = member === "dollars" ? (value) => dollars(value, 4) : seconds;
    return Plot.plot({
      className: "chart", width, style, color,
      ariaLabel: said(`${member === "dollars" ? "Cost" : "Time"} of each session by probe and side: ${names.map((name) => `${name} ${SIDES.map((side) => {
        const own = shown.filter((row) => row.name === name && row.side === side).map((row) => row.value);
        return own.length ? `${side} median ${d3.median(own).toFixed(2)}` : `${side} none`;
      }).join(" and ")}`).join(", ")}.`),
      marginLeft: 24, marginTop: 22, marginRight: 16, height: 40 + names.length * 76,
      x: { label: null, grid: true, zero: false, nice: true, ticks: width < 460 ? 4 : 6 },
      y: { domain: SIDES, label: null, padding: 0.3, tickSize: 0 },
      fy: { domain: names, axis: null, padding: 0.4 },
      marks: [
        Plot.text(names, { fy: (d) => d, text: (d) => d, frameAnchor: "top-left", dy: -13, lineWidth: Math.max(12, width / 14), textOverflow: "ellipsis" }),
        Plot.tickX(shown, { fy: "name", x: "value", y: "side", stroke: "side", strokeOpacity: shown.length > 200 ? 0.3 : 0.8, strokeWidth: 1.5 }),
        shown.length > 8 ? Plot.boxX(shown, { fy: "name", x: "value", y: "side", stroke: "currentColor", strokeOpacity: 0.8, fill: "currentColor", fillOpacity: 0.08, r: 0 }) : null,
        Plot.tip(shown, Plot.pointerX({ fy: "name", x: "value", y: "side", fill: "var(--panel)", title: (d) => `${d.side}, ${d.session}\n${show(d.value)}` })),
      ],
    });
  };

  for (const place of document.querySelectorAll("[data-differences]")) draw(place, rateChart(Number(place.dataset.differences)));
  for (const place of document.querySelectorAll("[data-sides]")) draw(place, sideChart(place.dataset.sides));
  document.body.dataset.ready = "yes";
})();
