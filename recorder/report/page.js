"use strict";
// The report's behaviour: what is shown at which address. It draws with drawing.js.
(async () => {
  const { $, rehearsal, element, unpack, dollars, seconds, percent, draw, said, style, room } = drawing;

  const data = await unpack();
  const byName = new Map(data.sessions.map((session) => [session.name, session]));
  const lineName = new Map(data.lines.map((line) => [line.number, line.name]));
  const lineOf = (session) => lineName.get(session.line) ?? `${session.tier} ${session.arm}`.trim();
  const lineNames = data.lines.map((line) => line.name);
  const palette = lineNames.map((_, index) => `var(--s${(index % 6) + 1})`);

  const bytes = (value) => value === null ? "–" : value < 1000 ? `${value} B` : value < 1e6 ? `${(value / 1000).toFixed(1)} kB` : `${(value / 1e6).toFixed(1)} MB`;
  const answerOf = (session) => !session.answer_known ? "–" : session.answer ?? "none";
  const badge = (text, kind) => element("span", { class: `badge ${kind}` }, text);
  const outcomeBadge = (session) => badge(
    session.outcome === "refused" ? `refused, exit ${session.code}` : session.outcome,
    session.outcome.replace(" ", "-"));
  const rehearsalBadge = () => rehearsal ? [" ", badge("rehearsal", "script")] : [];
  const sessionLink = (name, text) => element("a", { href: `#/session/${encodeURIComponent(name)}` }, text ?? name);

  // Charts.

  const base = (width, options) => Plot.plot({
    className: "chart", width, style, color: { domain: lineNames, range: palette }, ...options });

  const ratesOf = (probe) => data.rates.filter((rate) => rate.probe === probe)
    .map((rate) => ({ ...rate, name: lineName.get(rate.line) }));
  // Disciplines are counted by arm: in the colour of the arm's first line.
  const broken = data.disciplines.map((rate) => ({ ...rate, what: rate.discipline, count: rate.broken, total: rate.judged,
    name: data.lines.find((line) => line.tier === rate.tier && line.arm === rate.arm)?.name ?? `${rate.tier} ${rate.arm}` }));

  const rateChart = (title, all) => (width) => {
    const rates = all.filter((rate) => rate.low !== null).map((rate) => ({ ...rate, rate: rate.count / rate.total }));
    const what = [...new Set(rates.map((rate) => rate.what))];
    const names = lineNames.filter((name) => rates.some((rate) => rate.name === name));
    const narrow = width < 620;
    const margin = narrow ? 8 : room(what, width);
    const row = 20;
    return base(width, {
      ariaLabel: said(`${title}, with Wilson's 95 % intervals; the table below holds the same.`),
      marginLeft: margin, marginRight: narrow ? 54 : room(names.map((name) => `${name} 000 of 000`), width) , marginTop: narrow ? 22 : 26, marginBottom: narrow ? 26 : 8,
      height: (narrow ? 50 : 34) + what.length * (names.length * row + (narrow ? 28 : 16)),
      x: { domain: [0, 1], axis: narrow ? "bottom" : "top", tickFormat: (value) => `${Math.round(value * 100)} %`, ticks: narrow ? 3 : 6, label: null, grid: true },
      y: { domain: names, axis: null, type: "point", padding: 0.6 },
      fy: { domain: what, label: null, axis: null, padding: narrow ? 0.3 : 0.1 },
      marks: [
        Plot.text(what, narrow
          ? { fy: (d) => d, text: (d) => d, frameAnchor: "top-left", dy: -13, fontWeight: 600, lineWidth: 40, textOverflow: "ellipsis" }
          : { fy: (d) => d, text: (d) => d, frameAnchor: "left", textAnchor: "end", dx: -10, lineWidth: margin / 13, textOverflow: "ellipsis" }),
        Plot.frame({ anchor: "left", stroke: "currentColor", strokeOpacity: 0.35 }),
        Plot.ruleY(rates, { fy: "what", y: "name", x1: "low", x2: "high", stroke: "name", strokeWidth: 3, strokeOpacity: 0.45 }),
        Plot.dot(rates, { fy: "what", y: "name", x: "rate", fill: "name", r: 4.5,
          title: (d) => `${d.name}\n${d.what}: ${d.count} of ${d.total}\n${percent(d.low)} to ${percent(d.high)}`, tip: { fill: "var(--panel)" } }),
        Plot.text(rates, { fy: "what", y: "name", x: 1, dx: 8, textAnchor: "start", fill: "currentColor",
          text: (d) => narrow ? `${d.count} of ${d.total}` : `${d.count} of ${d.total}  ${d.name}` }),
      ],
    });
  };

  const spreadChart = (member) => (width) => {
    const rows = data.sessions.filter((s) => s[member] !== null && s.outcome !== "not run")
      .map((s) => ({ name: lineOf(s), value: s[member], session: s.name }));
    const names = lineNames;
    const narrow = width < 460;
    return base(width, {
      ariaLabel: said(`${member === "dollars" ? "Cost" : "Time"} of each session by line: ${names.map((name) => {
        const own = rows.filter((row) => row.name === name).map((row) => row.value);
        return own.length ? `${name} median ${d3.median(own).toFixed(2)}` : `${name} none`;
      }).join(", ")}.`),
      marginLeft: narrow ? 8 : room(names, width), marginTop: 6, marginRight: 16, height: 40 + names.length * (narrow ? 58 : 40),
      x: { label: null, grid: true, zero: false, nice: true, ticks: narrow ? 4 : 6 }, y: { label: null, domain: names, axis: narrow ? null : "left", padding: narrow ? 0.5 : 0.25 },
      marks: [
        narrow ? Plot.text(names, { y: (d) => d, text: (d) => d, frameAnchor: "left", dy: -24 }) : null,
        Plot.tickX(rows, { x: "value", y: "name", stroke: "name", strokeOpacity: rows.length > 100 ? 0.3 : 0.8, strokeWidth: 1.5 }),
        rows.length > 8 ? Plot.boxX(rows, { x: "value", y: "name", stroke: "currentColor", strokeOpacity: 0.8, fill: "currentColor", fillOpacity: 0.08, r: 0 }) : null,
        Plot.dot(rows, Plot.pointerX({ x: "value", y: "name", fill: "name", r: 4 })),
        Plot.tip(rows, Plot.pointerX({ x: "value", y: "name", fill: "var(--panel)", title: (d) => `${d.session}\n${member === "dollars" ? dollars(d.value, 4) : seconds(d.value)}` })),
      ],
    });
  };

  const histogram = (member) => (width) => {
    const rows = data.sessions.filter((s) => s[member] !== null && s.outcome !== "not run")
      .map((s) => ({ name: lineOf(s), value: s[member] }));
    return base(width, {
      ariaLabel: said(`How many sessions by ${member === "dollars" ? "cost in dollars" : "time in seconds"}, stacked by line.`),
      height: 190, marginLeft: 36, marginBottom: 28, marginTop: 10,
      x: { label: null, ticks: width < 460 ? 4 : 7 }, y: { label: null, grid: true, tickFormat: (value) => (Number.isInteger(value) ? String(value) : ""), ticks: 4 },
      marks: [
        Plot.rectY(rows, Plot.binX({ y: "count" }, { x: "value", fill: "name", thresholds: 16, inset: 0.5, tip: { fill: "var(--panel)" } })),
        Plot.ruleY([0]),
      ],
    });
  };

  const legend = () => element("p", { class: "fine" }, data.lines.map((line, index) => {
    const key = element("span", {}, "■ ");
    key.style.color = palette[index];
    return [key, line.name, "  "];
  }));

  const timelineChart = (session) => (width) => {
    const calls = session.calls.filter((call) => call.at !== null)
      .map((call) => ({ ...call, lane: call.tool, x1: call.at, x2: Math.max(call.end ?? call.at, call.at) }));
    const requests = session.requests.filter((request) => request.at !== null)
      .map((request) => ({ ...request, lane: `→ ${request.host}`, x1: request.at, x2: request.at + (request.seconds ?? 0) }));
    const tools = [...new Set(calls.map((call) => call.lane))];
    const hosts = [...new Set(requests.map((request) => request.lane))];
    const names = [...tools, ...hosts];
    const narrow = width < 560;
    const all = [...calls, ...requests];
    const low = Math.min(0, ...all.map((item) => item.x1));
    const high = Math.max(low + 0.1, ...all.map((item) => item.x2));
    const least = (high - low) * 0.006;
    const wide = (item) => Math.max(item.x2, item.x1 + least);
    const color = (call) => call.mark === "disagrees" ? "var(--bad)" : call.mark === "given" ? "var(--good)" : "var(--warn)";
    return Plot.plot({
      className: "chart", width, style,
      ariaLabel: said(`Timeline of ${session.name}: ${calls.length} calls by tool and ${requests.length} requests by host${calls.filter((call) => call.breaks.length).map((call) => `, call ${call.number} breaks ${call.breaks.join(" and ")}`).join("")}, in seconds from the start; the tables below hold the same.`),
      marginLeft: narrow ? 8 : room(names, width), marginRight: 14, marginTop: 24, marginBottom: 8,
      height: 40 + names.length * (narrow ? 44 : 28),
      x: { domain: [low, high], axis: "top", label: null, grid: true, ticks: narrow ? 4 : 9 },
      y: { domain: names, label: null, axis: narrow ? null : "left", padding: narrow ? 0.55 : 0.35, tickSize: 0 },
      marks: [
        narrow ? Plot.text(names, { y: (d) => d, text: (d) => d, frameAnchor: "left", dy: -15, lineWidth: 44, textOverflow: "ellipsis" }) : null,
        tools.length && hosts.length ? Plot.ruleY([hosts[0]], { dy: narrow ? -24 : -14, strokeOpacity: 0.4 }) : null,
        Plot.barX(calls, { y: "lane", x1: "x1", x2: wide, fill: color, rx: 2 }),
        Plot.dot(calls.filter((call) => call.breaks.length), { y: "lane", x: "x1", symbol: "diamond", fill: "var(--bad)", stroke: "var(--page)", r: 6 }),
        Plot.barX(requests.filter((r) => r.outcome === "allowed"), { y: "lane", x1: "x1", x2: wide, fill: "var(--s1)", rx: 2 }),
        Plot.dot(requests.filter((r) => r.outcome !== "allowed"), { y: "lane", x: "x1", symbol: "times", stroke: "var(--bad)", strokeWidth: 2, r: 4 }),
        Plot.tip(all, Plot.pointer({ y: "lane", x: "x1", fill: "var(--panel)", lineWidth: 30,
          title: (d) => d.tool !== undefined
            ? `call ${d.number}: ${d.tool}\n${d.argument.slice(0, 160)}\n${d.at.toFixed(2)} s${d.end === null ? "" : ` to ${d.end.toFixed(2)} s`}, ${d.mark}${d.breaks.map((name) => `\nbreaks ${name}`).join("")}`
            : `${d.asked}\n${d.host}\n${d.outcome === "allowed" ? "allowed" : `refused by ${d.outcome}`}, ${d.at.toFixed(2)} s` })),
      ],
    });
  };

  // The list of sessions.

  const COLUMNS = [
    ["name", "Session", "keep", (s) => s.name, (s) => [sessionLink(s.name), rehearsalBadge()]],
    ["line", "Line", "full", (s) => lineOf(s), (s) => lineOf(s)],
    ["probe", "Probe", "full", (s) => s.probe, (s) => s.probe],
    ["outcome", "End", "keep", (s) => `${s.outcome} ${s.code ?? ""}`, (s) => outcomeBadge(s)],
    ["answer", "Answer", "", (s) => s.answer ?? "", (s) => answerOf(s)],
    ["calls", "Calls", "num", (s) => s.call_count ?? -1, (s) => s.call_count ?? "–"],
    ["allowed", "Allowed", "num", (s) => s.allowed ?? -1, (s) => s.allowed ?? "–"],
    ["refused", "Refused", "num", (s) => s.refused ?? -1, (s) => s.refused ?? "–"],
    ["seconds", "Time", "num", (s) => s.seconds ?? -1, (s) => seconds(s.seconds)],
    ["cost", "Cost", "num", (s) => s.dollars ?? -1, (s) => s.outcome === "not run" ? "–" : dollars(s.dollars)],
  ];
  const searchText = new Map(data.sessions.map((s) => [s.name, [
    s.name, s.probe, lineOf(s), s.outcome, s.answer ?? "", ...s.reasons, ...new Set(s.calls.map((c) => c.tool)),
    ...new Set(s.requests.map((r) => `${r.host} ${r.outcome}`)), ...(s.files ?? []).map((f) => f.path),
    ...new Set(s.breaks.map((b) => `breaks ${b.discipline}`)),
  ].join("\n").toLowerCase()]));

  const FILTERS = [
    ["line", "Line", (s) => String(s.line), () => data.lines.map((line) => [String(line.number), line.name])],
    ["probe", "Probe", (s) => s.probe, () => options((s) => s.probe)],
    ["end", "End", (s) => s.outcome, () => options((s) => s.outcome)],
    ["answer", "Answer", (s) => answerOf(s), () => options(answerOf)],
    ["host", "Reached for", null, () => data.hosts.map((host) => [host.host, host.host])],
    ["broke", "Broke", null, () => [...new Set(data.disciplines.map((rate) => rate.discipline))].map((name) => [name, name])],
  ];
  const HOLDS = {
    host: (session, wanted) => session.requests.some((request) => request.host === wanted),
    broke: (session, wanted) => session.breaks.some((each) => each.discipline === wanted),
  };
  const options = (of) => [...new Set(data.sessions.map(of))].sort().map((value) => [value, value]);

  const chosen = (query) => {
    const words = (query.get("q") ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    return data.sessions.filter((session) =>
      words.every((word) => searchText.get(session.name).includes(word)) &&
      FILTERS.every(([key, , of]) => {
        const wanted = query.get(key);
        if (!wanted) return true;
        return of ? of(session) === wanted : HOLDS[key](session, wanted);
      }));
  };
  const sorted = (sessions, query) => {
    const [key, direction] = (query.get("sort") ?? "").split("-");
    const column = COLUMNS.find(([name]) => name === key);
    if (!column) return sessions;
    const sign = direction === "down" ? -1 : 1;
    const of = column[3];
    return [...sessions].sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      return sign * (typeof x === "number" ? x - y : x.localeCompare(y, "en", { numeric: true }));
    });
  };
  const address = (query) => { const text = query.toString(); return text ? `#/sessions?${text}` : "#/sessions"; };

  const listView = (query) => {
    const list = $("#list");
    const body = element("tbody");
    const count = element("p", { class: "fine", role: "status" });
    const head = element("tr");
    const fill = () => {
      const sessions = sorted(chosen(query), query);
      count.textContent = `${sessions.length} of ${data.sessions.length} sessions`;
      const [key, direction] = (query.get("sort") ?? "").split("-");
      head.replaceChildren(...COLUMNS.map(([name, title, kind]) => element("th", {
        scope: "col", class: kind, "aria-sort": name === key ? (direction === "down" ? "descending" : "ascending") : null,
      }, element("button", { type: "button", onclick: () => {
        query.set("sort", `${name}-${name === key && direction === "up" ? "down" : "up"}`);
        history.replaceState(null, "", address(query));
        fill();
        $(`[data-column="${name}"]`, head)?.focus();
      }, "data-column": name }, title))));
      body.replaceChildren(...sessions.map((session) => element("tr", {}, COLUMNS.map(([name, title, kind, , show], index) =>
        index === 0 ? element("th", { scope: "row", class: kind }, show(session))
          : element("td", { class: kind, "data-label": title }, show(session))))));
    };
    const change = (key) => (event) => {
      if (event.target.value) query.set(key, event.target.value); else query.delete(key);
      history.replaceState(null, "", address(query));
      fill();
    };
    const search = element("input", { type: "search", id: "search", placeholder: "name, tool, host, file, reason", oninput: change("q") });
    search.value = query.get("q") ?? "";
    list.replaceChildren(
      element("h1", { tabindex: "-1" }, "Sessions", rehearsalBadge()),
      element("form", { class: "filters", role: "search" },
        element("div", { class: "wide" }, element("label", { for: "search" }, "Search"), search),
        FILTERS.filter(([key, , , of]) => of().length > (key === "broke" ? 0 : 1)).map(([key, title, , of]) => {
          const select = element("select", { id: `filter-${key}`, onchange: change(key) },
            element("option", { value: "" }, "all"), of().map(([value, text]) => element("option", { value }, text)));
          select.value = query.get(key) ?? "";
          return element("div", {}, element("label", { for: `filter-${key}` }, title), select);
        })),
      count,
      element("table", { class: "cards" }, element("thead", {}, head), body));
    $("form", list).addEventListener("submit", (event) => event.preventDefault());
    fill();
  };

  // One session's page.

  // A record's own sentences know two marks: **strong** and `code`.
  const prose = (text) => text.split(/(\*\*[^*]+\*\*|`[^`]+`)/).map((part) =>
    part.startsWith("**") && part.length > 4 ? element("strong", {}, part.slice(2, -2))
      : part.startsWith("`") && part.length > 2 ? element("code", {}, part.slice(1, -1)) : part);

  const resultCell = (call) => call.result === null ? element("span", { class: "none" }, "not recorded")
    : call.result === "" ? element("span", { class: "none" }, "no document")
      : element("code", { class: "digest", title: call.result }, `${call.result.slice(0, 19)}…`);
  const MARKS = {
    given: "the provider gave it", normalised: "given, then normalised by the harness",
    disagrees: "the witnesses disagree", "not joined": "not joined with the log",
  };
  const at = (value) => value === null ? "–" : value.toFixed(2);

  const callRow = (call) => element("tr", { id: `call-${call.number}`, tabindex: call.breaks.length ? "-1" : null },
    element("td", { class: "num", "data-label": "Call" }, call.number),
    element("td", { class: "num", "data-label": "At, seconds" }, at(call.at)),
    element("td", { class: "full tools", "data-label": "Tool" }, element("span", { class: "tool" }, call.tool),
      call.subagent ? [" ", badge("subagent", "quiet")] : null, call.failed ? [" ", badge("failed", "failed")] : null,
      call.breaks.map((name) => [" ", badge(`breaks ${name}`, "broken")])),
    element("td", { class: "wide" }, element("pre", { class: "argument", tabindex: call.argument.length > 300 ? "0" : null }, call.argument),
      call.cut ? element("small", {}, `${call.cut} characters more`) : null),
    element("td", { class: "full", "data-label": "Document" }, resultCell(call)),
    element("td", { class: "full", "data-label": "Witness" }, badge(call.mark, call.mark.replace(" ", "-") === "not-joined" ? "quiet" : call.mark),
      element("small", {}, ` ${call.finding || MARKS[call.mark]}${call.request === null ? "" : ` in request ${call.request}`}`)));

  const requestRow = (request) => element("tr", {},
    element("td", { class: "num", "data-label": "At, seconds" }, at(request.at)),
    element("td", { class: "full", "data-label": "Outcome" }, request.outcome === "allowed"
      ? [badge("allowed", "given"), request.request === null ? null : element("small", {}, ` request ${request.request}`)]
      : [badge("refused", "refused"), element("small", {}, ` ${request.outcome}${request.detail ? `: ${request.detail}` : ""}`)]),
    element("td", { class: "full", "data-label": "Host" }, element("code", {}, request.host)),
    element("td", { class: "full", "data-label": "Asked" }, element("code", {}, request.asked || "–")),
    element("td", { class: "num", "data-label": "Status" }, request.status ?? "closed"),
    element("td", { class: "num", "data-label": "Sent" }, bytes(request.sent)),
    element("td", { class: "num", "data-label": "Received" }, bytes(request.received)),
    element("td", { "data-label": "Model", class: request.model ? "full" : "blank" }, request.model));

  // To a row of the same page: an address of its own would leave the session's.
  const toCall = (number) => (event) => {
    event.preventDefault();
    const row = $(`#call-${number}`);
    row?.scrollIntoView({ block: "center" });
    row?.focus({ preventScroll: true });
  };
  const breakRow = (session) => (each) => element("tr", {},
    element("th", { scope: "row", class: "full" }, each.discipline),
    element("td", { "data-label": "Where" }, each.call === null ? "the whole session"
      : element("a", { href: `#/session/${encodeURIComponent(session.name)}`, onclick: toCall(each.call) }, `call ${each.call}`)),
    element("td", { class: "full", "data-label": "Of" }, element("code", {}, each.subject)),
    element("td", { "data-label": "Verdict" }, badge(each.event, "broken")));
  const disciplines = (session) => session.verdicts === null && !session.not_judged ? null : [
    element("h2", {}, "Disciplines"),
    session.verdicts === null ? element("p", {}, `Not judged: ${session.not_judged}.`) : [
      session.breaks.length ? table("Disciplines", [["Broken", ""], ["Where", ""], ["Of", ""], ["Verdict", ""]], session.breaks.map(breakRow(session))) : element("p", {}, "It broke none."),
      session.more_breaks ? element("p", { class: "fine" }, `${session.more_breaks} more are in disciplines.log.`) : null,
      element("p", { class: "fine" }, `Verdicts: ${Object.entries(session.verdicts).map(([event, count]) => `${count} ${event}`).join(", ") || "none"}. What was skipped is not passed.`)],
  ];

  const table = (label, headings, rows) => element("table", { class: "cards", "aria-label": label },
    element("thead", {}, element("tr", {}, headings.map(([text, kind]) => element("th", { scope: "col", class: kind }, text)))),
    element("tbody", {}, rows));

  const fileItem = (file) => element("li", {},
    element("code", {}, file.path), " ", badge(file.kind, "quiet"),
    file.digest ? [" ", element("code", { class: "digest none", title: file.digest }, `${file.digest.slice(0, 19)}…`)] : null,
    file.cites.length ? element("div", {}, element("small", {}, `cites ${file.cites.join(", ")}`)) : null,
    file.findings === null ? null : element("div", {}, file.findings.length
      ? file.findings.map((finding) => element("div", { class: "bad" }, finding))
      : element("small", {}, "the check found nothing")),
    file.why ? element("div", {}, element("small", {}, file.why)) : null,
    file.diff === null ? null : element("details", { open: file.diff.length <= 60 },
      element("summary", {}, file.added === null ? `${file.diff.length} lines` : `${file.added} lines added, ${file.removed} removed`),
      element("pre", { class: "diff", tabindex: "0", role: "region", "aria-label": `Text of ${file.path}` }, file.diff.map((line) => element("span", {
        class: { "+": "add", "-": "del", "@": "hunk" }[line[0]] ?? "",
      }, line || " "))),
      file.cut ? element("small", {}, `${file.cut} lines more are kept`) : null));

  const facts = (items) => element("dl", { class: "facts" }, items.map((fact) =>
    element("div", {}, element("dt", {}, fact.name), element("dd", {}, fact.value))));

  const sessionView = (session) => {
    const place = $("#session");
    const index = data.sessions.indexOf(session);
    const plot = element("div", { class: "plot" });
    const tile = (value, name) => element("li", {}, element("b", {}, value), element("span", {}, name));
    place.replaceChildren(...[
      element("p", { class: "steps" }, element("a", { href: "#/sessions" }, "All sessions"),
        index > 0 ? sessionLink(data.sessions[index - 1].name, "← Previous") : null,
        index + 1 < data.sessions.length ? sessionLink(data.sessions[index + 1].name, "Next →") : null),
      element("h1", { tabindex: "-1" }, session.name, " ", outcomeBadge(session), rehearsalBadge()),
      element("p", { class: "fine" }, session.probe ? [element("a", { href: `#/sessions?probe=${encodeURIComponent(session.probe)}` }, session.probe), ", "] : null,
        [session.tier && `tier ${session.tier}`, session.arm && `arm ${session.arm}`, session.repetition ? `repetition ${session.repetition}` : ""].filter(Boolean).join(", ")),
      session.reasons.length ? element("div", { class: "refusal", role: "note", "aria-label": "Why it was refused" }, element("p", {}, element("strong", {}, `Refused with exit ${session.code}.`)), session.reasons.map((reason) => element("p", {}, reason))) : null,
      session.faults.length ? element("div", { class: "refusal", role: "note", "aria-label": "What is wrong with its files" }, element("p", {}, element("strong", {}, "Its files are not whole.")), session.faults.slice(0, 12).map((fault) => element("p", {}, fault)),
        session.faults.length > 12 ? element("p", {}, `and ${session.faults.length - 12} more`) : null) : null,
      element("ul", { class: "tiles" },
        tile(answerOf(session), "answer"), tile(session.call_count ?? "–", "calls"), tile(session.turns ?? "–", "turns"),
        tile(session.allowed ?? "–", "requests allowed"), tile(session.refused ?? "–", "requests refused"),
        tile(seconds(session.seconds), "time"), tile(dollars(session.dollars, 4), rehearsal ? "cost, nothing spent" : "cost")),
      element("h2", {}, "Timeline"),
      session.calls.length || session.requests.length ? plot : element("p", {}, "Nothing was watched."),
      element("p", { class: "fine" }, `In seconds from the start. Bars: calls from the line that shows them to the line of their result, and requests from the decision to the answer's end. A cross is a refused request${session.breaks.length ? ", a diamond a call that broke a discipline" : ""}. Times of calls are the harness's own stamps.`),
      disciplines(session),
      element("h2", {}, "Calls"),
      session.calls.length ? [table("Calls", [["#", "num"], ["At, s", "num"], ["Tool", ""], ["Argument", ""], ["Document", ""], ["Witness", ""]], session.calls.map(callRow)),
        session.more_calls ? element("p", { class: "fine" }, `${session.more_calls} calls more are in its files.`) : null]
        : element("p", {}, session.call_count === 0 ? "It made none." : "None are known."),
      element("h2", {}, "Egress"),
      session.requests.length ? [table("Egress", [["At, s", "num"], ["Outcome", ""], ["Host", ""], ["Asked", ""], ["Status", "num"], ["Sent", "num"], ["Received", "num"], ["Model", ""]], session.requests.map(requestRow)),
        session.more_requests ? element("p", { class: "fine" }, `${session.more_requests} requests more are in its log.`) : null]
        : element("p", {}, session.allowed === null ? "There is no log." : "It tried nothing."),
      element("h2", {}, "What it produced"),
      session.files === null ? element("p", {}, "This was not watched, or not to its end.")
        : session.files.length ? element("ul", { class: "files" }, session.files.map(fileItem)) : element("p", {}, "Nothing."),
      session.left.length ? [element("h3", {}, "What else became of the workspace"), facts(session.left)] : null,
      element("h2", {}, "How it ended, and what was measured"),
      facts(session.facts),
      session.command === null ? null : element("details", {}, element("summary", {}, "The command that the driver ran"),
        element("pre", {}, data.commands[session.command].join("\n"))),
      session.statements.length ? [element("h2", {}, "What the record states"),
        element("div", { class: "prose" }, session.statements.map((number) => element("p", {}, prose(data.texts[number]))))] : null,
    ].flat(3).filter(Boolean));
    if (plot.isConnected) draw(plot, timelineChart(session));
  };

  // Where the address leads.

  const parts = { glance: $("#glance"), list: $("#list"), session: $("#session") };
  const prefix = rehearsal ? "Rehearsal: " : "";
  let shown = null;
  const show = (first) => {
    const hash = location.hash;
    if (hash && !hash.startsWith("#/")) return; // an anchor inside the page
    const [path, text] = hash.slice(1).split("?");
    let part = "glance";
    let title = data.title;
    if (path === "/sessions") { part = "list"; title = "Sessions"; }
    if (path.startsWith("/session/")) {
      let name = "";
      try { name = decodeURIComponent(path.slice(9)); } catch { /* no session is named so */ }
      part = "session";
      title = byName.has(name) ? name : "No such session";
    }
    for (const [name, section] of Object.entries(parts)) section.hidden = name !== part;
    if (part === "list") listView(new URLSearchParams(text ?? ""));
    else if (part === "session" && byName.has(title)) sessionView(byName.get(title));
    else if (part === "session") {
      parts.session.replaceChildren(element("h1", { tabindex: "-1" }, "No such session"),
        element("p", {}, "This report holds no session of that name. ", element("a", { href: "#/sessions" }, "All sessions"), "."));
    } else if (shown !== "glance") glance();
    document.title = `${prefix}${title}${part === "glance" ? "" : ` – ${data.title}`}`;
    for (const link of document.querySelectorAll("nav a")) {
      const own = link.getAttribute("href") === (part === "glance" ? "#/" : "#/sessions") && part !== "session";
      if (own) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
    }
    shown = part;
    if (!first) { scrollTo(0, 0); $("h1", parts[part])?.focus({ preventScroll: true }); }
  };

  const glance = () => {
    for (const place of document.querySelectorAll("[data-rates]")) draw(place, rateChart(`Rates of ${place.dataset.rates} by line`, ratesOf(place.dataset.rates)));
    for (const place of document.querySelectorAll("[data-disciplines]")) draw(place, rateChart("Sessions that broke a discipline, by arm", broken));
    for (const place of document.querySelectorAll("[data-spread]")) draw(place, spreadChart(place.dataset.spread));
    for (const place of document.querySelectorAll("[data-histogram]")) draw(place, histogram(place.dataset.histogram));
  };
  const most = Math.max(1, ...data.hosts.flatMap((host) => host.counts));
  for (const cell of document.querySelectorAll("[data-heat]")) {
    const share = Number(cell.dataset.heat) / most;
    if (share > 0) cell.style.background = `rgba(var(--heat-${cell.dataset.outcome}), ${(0.1 + 0.3 * Math.sqrt(share)).toFixed(2)})`;
  }
  $("#distributions").nextElementSibling.before(legend());
  if (data.rates.length) $("#rates").after(legend());
  addEventListener("hashchange", () => show(false));
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey || /^(input|select|textarea)$/i.test(event.target.tagName)) return;
    event.preventDefault();
    if (shown !== "list") location.hash = "#/sessions";
    setTimeout(() => $("#search")?.focus(), 0);
  });
  show(true);
  document.body.dataset.ready = "yes";
})();
