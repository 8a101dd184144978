"""What a session tried, one attempt a decision, with the answer that came of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median
from typing import Any, Literal

from recorder.audit.logs import SessionLog

By = Literal["host", "rule", "session"]


@dataclass(frozen=True)
class Attempt:
    """One decision on something that a session tried. ``answer``: the line of what came back.

    ``request`` numbers the requests of a session that left; None for what did not.
    """

    session: str
    decision: Mapping[str, Any]
    answer: Mapping[str, Any] | None

    @property
    def allowed(self) -> bool:
        return bool(self.decision["decision"] == "allowed")

    @property
    def request(self) -> int | None:
        number = self.decision["request"]
        return number if isinstance(number, int) else None

    @property
    def host(self) -> str:
        """The host asked for, ``-`` where nothing was."""
        return str(self.decision["asked"].get("host", "-"))

    @property
    def place(self) -> str:
        asked = self.decision["asked"]
        return f"{self.host}:{asked['port']}" if "port" in asked else self.host

    @property
    def outcome(self) -> str:
        """``allowed`` or the rule that refused."""
        return "allowed" if self.allowed else str(self.decision["rule"])

    @property
    def answered(self) -> bool:
        return self.answer is not None and self.answer["status"] is not None

    def of_answer(self, member: str) -> Any:
        return None if self.answer is None else self.answer[member]


@dataclass(frozen=True)
class Selection:
    """Which attempts are wanted. A host may be a pattern (``*.test``)."""

    hosts: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    refused: bool = False

    def takes(self, attempt: Attempt) -> bool:
        named = (attempt.host, attempt.place)
        return (
            (not self.refused or not attempt.allowed)
            and (not self.rules or attempt.outcome in self.rules)
            and (not self.sessions or attempt.session in self.sessions)
            and (
                not self.hosts
                or any(fnmatchcase(name, host) for name in named for host in self.hosts)
            )
        )


def attempts(sessions: Iterable[SessionLog]) -> Iterator[Attempt]:
    """Every attempt, in the logs' order. Lines that are no whole decision are left out: they are
    among their log's faults."""
    for session in sessions:
        answers = {
            line.get("request"): line
            for line in session.lines
            if line["kind"] == "answer" and line.keys() >= _ANSWER
        }
        for line in session.lines:
            if line["kind"] == "decision" and line.keys() >= _DECISION:
                number = line["request"]
                answer = answers.get(number) if isinstance(number, int) else None
                yield Attempt(session.name, line, answer)


_DECISION = frozenset({"request", "asked", "decision", "rule", "layer", "status", "time"})
_ANSWER = frozenset(
    {"request", "status", "upstream", "sent_bytes", "received_bytes", "first_byte_ms", "whole_ms"}
)


@dataclass(frozen=True)
class Row:
    """Attempts that share a key. Bytes are those of requests that left and of their answers."""

    key: tuple[str, ...]
    attempts: int
    sessions: int
    sent_bytes: int
    received_bytes: int
    first_byte_ms: float | None


HEADINGS: Mapping[By, tuple[str, ...]] = {
    "host": ("host", "outcome"),
    "rule": ("outcome",),
    "session": ("session", "outcome"),
}


def rows(chosen: Iterable[Attempt], by: By) -> tuple[Row, ...]:
    """The attempts grouped, the most frequent first; sessions stay in their own order."""
    groups: dict[tuple[str, ...], list[Attempt]] = {}
    for attempt in chosen:
        key = {
            "host": (attempt.place, attempt.outcome),
            "rule": (attempt.outcome,),
            "session": (attempt.session, attempt.outcome),
        }[by]
        groups.setdefault(key, []).append(attempt)
    made = [_row(key, group) for key, group in groups.items()]
    if by == "session":
        return tuple(sorted(made, key=lambda row: (row.key[0], row.key[1] != "allowed", row.key)))
    return tuple(sorted(made, key=lambda row: (-row.attempts, row.key)))


def _row(key: tuple[str, ...], group: Sequence[Attempt]) -> Row:
    answers = [attempt.answer for attempt in group if attempt.answer is not None]
    firsts = [answer["first_byte_ms"] for answer in answers if answer["first_byte_ms"] is not None]
    return Row(
        key=key,
        attempts=len(group),
        sessions=len({attempt.session for attempt in group}),
        sent_bytes=sum(answer["sent_bytes"] for answer in answers),
        received_bytes=sum(answer["received_bytes"] for answer in answers),
        first_byte_ms=round(median(firsts), 1) if firsts else None,
    )
