"""What a report shows, as data: the model that the page and the terminal both print. Pure.

Every text in it has gone through ``visible``. None holds what a model said: calls with their
arguments, digests, names, counts, times, and files that a session wrote.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from recorder.disciplines.rates import Rate as DisciplineRate

Outcome = Literal["recorded", "capped", "refused", "unfinished", "not run", "unreadable"]
Mark = Literal["given", "normalised", "disagrees", "not joined"]

# In the order in which a person wants them counted.
OUTCOMES: tuple[Outcome, ...] = (
    "recorded",
    "capped",
    "refused",
    "unreadable",
    "unfinished",
    "not run",
)


class CallView(msgspec.Struct, frozen=True, kw_only=True):
    """One call. ``at`` and ``end`` are seconds from the session's zero, None where nothing says.

    ``cut``: how many characters of the argument are left out here. ``result`` is the digest of
    the document it named, empty for none, None where the record holds none. ``request`` numbers
    the egress request whose answer gave the call. ``finding`` is how the witnesses disagree, and
    ``breaks`` are the disciplines that the call broke.
    """

    number: int
    at: float | None
    end: float | None
    tool: str
    argument: str
    cut: int
    result: str | None
    mark: Mark
    finding: str
    failed: bool | None
    subagent: bool
    request: int | None
    breaks: tuple[str, ...] = ()


class RequestView(msgspec.Struct, frozen=True, kw_only=True):
    """One decision of the sidecar. ``outcome`` is ``allowed`` or the rule that refused."""

    at: float | None
    seconds: float | None
    host: str
    asked: str
    outcome: str
    detail: str
    request: int | None
    status: int | None
    sent: int | None
    received: int | None
    model: str


class FileView(msgspec.Struct, frozen=True, kw_only=True):
    """One produced file. ``diff`` is None where no text is kept, and ``why`` says why not.

    A line of it starts with ``+``, ``-``, a space or ``@``. ``cut`` counts lines left out.
    ``added`` and ``removed`` count the lines that changed, None where that cannot be told.
    """

    path: str
    kind: str
    digest: str
    cites: tuple[str, ...]
    findings: tuple[str, ...] | None
    diff: tuple[str, ...] | None
    cut: int
    why: str
    added: int | None = None
    removed: int | None = None


class Fact(msgspec.Struct, frozen=True):
    name: str
    value: str


class BreakView(msgspec.Struct, frozen=True, kw_only=True):
    """A discipline that was broken. ``call`` counts from 1, None for the session as a whole."""

    discipline: str
    call: int | None
    subject: str
    event: str


class SessionView(msgspec.Struct, frozen=True, kw_only=True):
    """One session. ``line`` counts from 1 in the batch; 0 for a session of no batch.

    ``answer`` is None for a session without a declared answer; ``answer_known`` says whether the
    record holds the key at all. ``dollars`` is the harness's own figure, None where it is unknown.
    ``seconds`` is the session's own time. ``more_calls`` and ``more_requests`` count what a page
    has no room for. ``statements`` and ``command`` index shared texts.

    ``verdicts`` counts what disciplines came to, by event. It is None where none judged the
    session; ``not_judged`` says why, where others of the batch were. ``more_breaks`` have no room.
    """

    name: str
    line: int
    probe: str
    tier: str
    arm: str
    repetition: int
    rehearsal: bool | None
    outcome: Outcome
    code: int | None
    reasons: tuple[str, ...]
    answer_known: bool
    answer: str | None
    dollars: float | None
    seconds: float | None
    turns: int | None
    call_count: int | None
    allowed: int | None
    refused: int | None
    opened: bool | None
    calls: tuple[CallView, ...]
    more_calls: int = 0
    requests: tuple[RequestView, ...]
    more_requests: int = 0
    files: tuple[FileView, ...] | None
    left: tuple[Fact, ...]
    facts: tuple[Fact, ...]
    faults: tuple[str, ...]
    statements: tuple[int, ...]
    command: int | None
    verdicts: Mapping[str, int] | None = None
    not_judged: str = ""
    breaks: tuple[BreakView, ...] = ()
    more_breaks: int = 0


class ProbeView(msgspec.Struct, frozen=True, kw_only=True):
    """A probe as its plan states it. ``answers`` is empty for one without a closed set."""

    id: str
    path: str
    category: str
    expects: str
    answers: tuple[str, ...]
    examines: str


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How many of a probe's sessions in a line; ``low`` and ``high`` are Wilson's."""

    line: int
    probe: str
    what: str
    count: int
    total: int
    low: float | None
    high: float | None


class LineView(msgspec.Struct, frozen=True, kw_only=True):
    """One line at a glance. ``dollars`` sums what is known; ``unknown_costs`` counts the rest."""

    number: int
    name: str
    tier: str
    arm: str
    sessions: int
    outcomes: Mapping[str, int]
    dollars: float
    unknown_costs: int
    median_seconds: float | None
    calls: int


class HostView(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the egress map: how often each outcome met a host, in the order of the columns."""

    host: str
    counts: tuple[int, ...]
    sessions: int


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A whole report. ``rehearsal``: a session of it says that it is one.

    ``outcomes`` are the columns of the egress map. ``texts`` and ``commands`` are shared by the
    sessions. ``limits`` says what was cut so that the page stays small. ``disciplines`` is empty
    where the batch was not judged.
    """

    title: str
    rehearsal: bool
    facts: tuple[Fact, ...]
    lines: tuple[LineView, ...]
    probes: tuple[ProbeView, ...]
    rates: tuple[Rate, ...]
    hosts: tuple[HostView, ...]
    outcomes: tuple[str, ...]
    sessions: tuple[SessionView, ...]
    texts: tuple[str, ...]
    commands: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...]
    limits: str
    disciplines: tuple[DisciplineRate, ...] = ()
