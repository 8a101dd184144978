"""What a session's egress log says, counted. Pure; the log's own reader verifies the chain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from proxy.egress import Reading, read


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Requests to one host that met one end. ``rule`` is empty for what was allowed."""

    host: str
    rule: str
    count: int


@dataclass(frozen=True)
class EgressSummary:
    """Counts of a session's requests, most frequent first. ``faults``: why not to believe it."""

    allowed: tuple[Asked, ...]
    refused: tuple[Asked, ...]
    faults: tuple[str, ...]

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
        faults=reading.faults,
    )


def _counted(reading: Reading, decision: str) -> tuple[Asked, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for line in reading.decisions:
        if line["decision"] == decision:
            asked = line.get("asked") or {}
            host = f"{asked.get('host', '-')}:{asked.get('port', '-')}"
            counts[host, str(line.get("rule") or "")] += 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(Asked(host=host, rule=rule, count=count) for (host, rule), count in ordered)


def phrase(asked: Sequence[Asked], verb: str) -> str:
    """``3 requests to `h```, joined, or ``no request``: the words of a transcript's prose."""
    if not asked:
        return f"{verb} no request"
    by_host: Counter[str] = Counter()
    for item in asked:
        by_host[item.host] += item.count
    ordered = sorted(by_host.items(), key=lambda item: (-item[1], item[0]))
    parts = [
        f"{count} {'request' if count == 1 else 'requests'} to `{host}`" for host, count in ordered
    ]
    return f"{verb} {', '.join(parts)}"
