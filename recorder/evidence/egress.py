"""What a session's egress log says, counted. Pure; the log's own reader verifies the chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from proxy.decision import Rule
from proxy.egress import Reading, read

# Rules that refuse a request because the provider would have reached out for it, each with the
# name it is told by where the request itself gave none.
FETCH_RULES = {
    Rule.SERVER_TOOL: "a tool without a name",
    Rule.MCP_SERVERS: "mcp_servers",
    Rule.CONTAINER: "container",
    Rule.SOURCE: "a source",
}
# Rules that refuse because the whole session has used up what it may, each with its measure.
BOUND_RULES = {
    Rule.BOUND_REQUESTS: "requests",
    Rule.BOUND_BYTES: "bytes",
    Rule.BOUND_INPUT_TOKENS: "tokens in",
    Rule.BOUND_OUTPUT_TOKENS: "tokens out",
    Rule.BOUND_DOLLARS: "dollars",
}
# The host of a line that names none, as evidence holds it.
NO_HOST = "-:-"
# The layers at which a request was already one to the provider's own host.
REQUEST_LAYERS = frozenset({"head", "request", "body"})


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to one host that met one end. ``rule`` is empty for what was allowed."""

    host: str
    rule: str
    count: int


class Fetch(msgspec.Struct, frozen=True, kw_only=True):
    """Refused requests that asked the provider to reach out: the tool, key or source, how often."""

    name: str
    count: int


class Bound(msgspec.Struct, frozen=True, kw_only=True):
    """A bound that a session met: its rule, the most it might have used, what was refused for it.

    ``limit`` is decimal text, in the measure that ``BOUND_RULES`` names.
    """

    rule: str
    limit: str
    refused: int

    @property
    def said(self) -> str:
        return f"{self.limit} {BOUND_RULES[Rule(self.rule)]}"


@dataclass(frozen=True)
class EgressSummary:
    """Counts of a session's requests, most frequent first. ``faults``: why not to believe it.

    Of ``refused``, ``fetches`` asked the provider to reach out, and ``not_forwarded`` are other
    requests to its host whose head, method, path or body does not pass. ``bound`` is the first
    that the session met.
    """

    allowed: tuple[Asked, ...]
    refused: tuple[Asked, ...]
    fetches: tuple[Fetch, ...]
    not_forwarded: int
    faults: tuple[str, ...]
    bound: Bound | None

    @property
    def allowed_count(self) -> int:
        return sum(asked.count for asked in self.allowed)

    @property
    def refused_count(self) -> int:
        return sum(asked.count for asked in self.refused)


def summarise(log: bytes) -> EgressSummary:
    """Count a log's decisions by host and rule; the sidecar's own canary is no decision."""
    reading = read(log.splitlines(keepends=True))
    return EgressSummary(
        allowed=_counted(reading, "allowed"),
        refused=_counted(reading, "refused"),
        fetches=_fetches(reading),
        not_forwarded=sum(
            line["decision"] == "refused"
            and line.get("layer") in REQUEST_LAYERS
            and line.get("rule") not in FETCH_RULES
            and line.get("rule") not in BOUND_RULES
            for line in reading.decisions
        ),
        faults=reading.faults,
        bound=_bound(reading),
    )


def _bound(reading: Reading) -> Bound | None:
    met = [line for line in reading.decisions if line.get("rule") in BOUND_RULES]
    if not met:
        return None
    rule, limit = str(met[0]["rule"]), str(met[0].get("detail", ""))
    return Bound(rule=rule, limit=limit, refused=len(met))


def _counted(reading: Reading, decision: str) -> tuple[Asked, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for line in reading.decisions:
        if line["decision"] == decision:
            asked = line.get("asked") or {}
            host = f"{asked.get('host', '-')}:{asked.get('port', '-')}"
            counts[host, str(line.get("rule") or "")] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Asked(host=host, rule=rule, count=count) for (host, rule), count in ordered)


def _fetches(reading: Reading) -> tuple[Fetch, ...]:
    names = (
        str(line.get("detail") or FETCH_RULES[Rule(line["rule"])])
        for line in reading.decisions
        if line["decision"] == "refused" and line.get("rule") in FETCH_RULES
    )
    return fetches_of(Counter(names))


def fetches_of(counts: Mapping[str, int]) -> tuple[Fetch, ...]:
    """Counts as a transcript lists them: the most frequent first, then by name."""
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Fetch(name=name, count=count) for name, count in ordered)


def requests(count: int) -> str:
    """``no request``, ``1 request``, ``2 requests``."""
    return f"{count or 'no'} {'request' if count in (0, 1) else 'requests'}"


def fetch_phrase(fetches: Sequence[Fetch]) -> str:
    """``1 request for `web_search_20250305```, joined, or ``no request``."""
    if not fetches:
        return requests(0)
    return ", ".join(f"{requests(fetch.count)} for `{fetch.name}`" for fetch in fetches)


def phrase(asked: Sequence[Asked], verb: str) -> str:
    """``3 requests to `h```, joined, or ``no request``: the words of a transcript's prose."""
    if not asked:
        return f"{verb} {requests(0)}"
    counts: Counter[tuple[str, str]] = Counter()
    for item in asked:
        counts[_place(item)] += item.count
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    parts = [
        f"{count} {noun if count == 1 else noun + 's'} {where}" for (noun, where), count in ordered
    ]
    return f"{verb} {', '.join(parts)}"


def _place(item: Asked) -> tuple[str, str]:
    """What was counted, and where it went: ``request`` and ``to `h``` where a host was named."""
    if item.host != NO_HOST:
        return "request", f"to `{item.host}`"
    nothing = item.rule == Rule.NOTHING_ASKED
    return "connection", "that asked nothing" if nothing else "that named no host"
