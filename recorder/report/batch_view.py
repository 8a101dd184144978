"""From the sessions of a batch to what is seen of it at a glance. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from recorder.disciplines.rates import Rate as DisciplineRate
from recorder.plan.reading import PlannedProbe, PlanText
from recorder.report.interval import wilson
from recorder.report.session_view import Shared
from recorder.report.view import (
    OUTCOMES,
    BatchView,
    Fact,
    HostView,
    LineView,
    ProbeView,
    Rate,
    SessionView,
)
from recorder.report.visible import one_line

NO_ANSWER = "no declared answer"
OPENED = "opened an examined document"
COUNTED = ("recorded", "capped")


@dataclass(frozen=True)
class PlannedLine:
    """A line of a batch: what was pinned, and its plan where there is one that can be read."""

    number: int
    name: str
    tier: str
    arm: str
    plan: PlanText | None


def examined_digests(plan: PlanText | None, probe: str) -> frozenset[str]:
    """The digests of the documents that a probe examines, as its plan states them."""
    planned = _planned(plan, probe)
    if plan is None or planned is None:
        return frozenset()
    return frozenset(
        digest for path, digest in plan.read_set.items() if digest != "-" and planned.names(path)
    )


def batch_view(
    title: str,
    lines: Sequence[PlannedLine],
    sessions: Sequence[SessionView],
    shared: Shared,
    *,
    facts: Sequence[Fact],
    notes: Sequence[str],
    limits: str,
    disciplines: Sequence[DisciplineRate] = (),
) -> BatchView:
    """The whole view. Sessions of no line make lines of their own, by tier and arm."""
    named = {line.number for line in lines}
    loose = sorted({(s.tier, s.arm) for s in sessions if s.line not in named and (s.tier or s.arm)})
    views = [_line(line.number, line.name, line.tier, line.arm, sessions) for line in lines] + [
        _loose_line(tier, arm, sessions, named) for tier, arm in loose
    ]
    probes = _probes(lines, sessions)
    hosts, outcomes = egress_map(sessions)
    return BatchView(
        title=one_line(title),
        rehearsal=any(session.rehearsal for session in sessions),
        facts=tuple(facts),
        lines=tuple(views),
        probes=probes,
        rates=tuple(_rates(lines, probes, sessions)),
        hosts=hosts,
        outcomes=outcomes,
        sessions=tuple(sessions),
        texts=tuple(shared.texts),
        commands=tuple(shared.commands),
        notes=tuple(one_line(note) for note in notes),
        limits=limits,
        disciplines=tuple(disciplines),
    )


def _line(number: int, name: str, tier: str, arm: str, sessions: Sequence[SessionView]) -> LineView:
    return _counted_line(
        number, name, tier, arm, [session for session in sessions if session.line == number]
    )


def _loose_line(tier: str, arm: str, sessions: Sequence[SessionView], named: set[int]) -> LineView:
    own = [s for s in sessions if s.line not in named and (s.tier, s.arm) == (tier, arm)]
    return _counted_line(0, f"{tier} {arm}", tier, arm, own)


def _counted_line(
    number: int, name: str, tier: str, arm: str, own: Sequence[SessionView]
) -> LineView:
    counts = Counter(session.outcome for session in own)
    ran = [session for session in own if session.outcome != "not run"]
    seconds = [session.seconds for session in ran if session.seconds is not None]
    return LineView(
        number=number,
        name=one_line(name),
        tier=one_line(tier),
        arm=one_line(arm),
        sessions=len(own),
        outcomes={outcome: counts[outcome] for outcome in OUTCOMES},
        dollars=sum(session.dollars for session in ran if session.dollars is not None),
        unknown_costs=sum(session.dollars is None for session in ran),
        median_seconds=median(seconds) if seconds else None,
        calls=sum(session.call_count or 0 for session in ran),
    )


def _planned(plan: PlanText | None, probe: str) -> PlannedProbe | None:
    return next((each for each in (plan.probes if plan else ()) if each.id == probe), None)


def _probes(lines: Sequence[PlannedLine], sessions: Sequence[SessionView]) -> tuple[ProbeView, ...]:
    planned: dict[str, PlannedProbe | None] = {}
    for line in lines:
        for probe in line.plan.probes if line.plan else ():
            planned.setdefault(probe.id, probe)
    for session in sessions:
        if session.probe:
            planned.setdefault(session.probe, None)
    return tuple(
        ProbeView(
            id=one_line(identifier),
            path=one_line(probe.path) if probe else "",
            category=one_line(probe.category) if probe else "",
            expects=one_line(probe.expectation) if probe else "",
            answers=tuple(map(one_line, probe.answers)) if probe else (),
            examines=one_line(probe.examines) if probe else "",
        )
        for identifier, probe in sorted(planned.items())
    )


def _rates(
    lines: Sequence[PlannedLine], probes: Sequence[ProbeView], sessions: Sequence[SessionView]
) -> list[Rate]:
    """Each answer's rate by probe and line, over the sessions that recorded.

    A probe without a declared set has no answer to count. A session stopped by the turn cap has
    recorded, and is one without a declared answer.
    """
    rates: list[Rate] = []
    for probe in probes:
        for line in lines:
            own = [
                session
                for session in sessions
                if (session.line, session.probe) == (line.number, probe.id)
                and session.outcome in COUNTED
            ]
            known = [s.answer for s in own if s.answer_known and s.answer is not None]
            answers = [*probe.answers, *sorted(set(known) - set(probe.answers))]
            rates += [
                _rate(line.number, probe.id, what, *counted)
                for what, counted in counted_answers(answers, own).items()
            ]
    return rates


def counted_answers(
    answers: Sequence[str], recorded: Sequence[SessionView]
) -> dict[str, tuple[int, int]]:
    """How many of how many recorded sessions, by what is counted: whether a document that the
    probe examines was opened, each answer, and none."""
    counted: dict[str, tuple[int, int]] = {}
    watched = [session for session in recorded if session.opened is not None]
    if watched:
        counted[OPENED] = sum(bool(session.opened) for session in watched), len(watched)
    answered = [session for session in recorded if session.answer_known]
    if answers and answered:
        for answer in answers:
            counted[answer] = sum(s.answer == answer for s in answered), len(answered)
        counted[NO_ANSWER] = sum(session.answer is None for session in answered), len(answered)
    return counted


def _rate(line: int, probe: str, what: str, count: int, total: int) -> Rate:
    interval = wilson(count, total)
    low, high = interval if interval is not None else (None, None)
    return Rate(line=line, probe=probe, what=what, count=count, total=total, low=low, high=high)


def egress_map(
    sessions: Sequence[SessionView],
) -> tuple[tuple[HostView, ...], tuple[str, ...]]:
    """Hosts by outcome: what was allowed first, then each rule that refused, the most met first."""
    cells: Counter[tuple[str, str]] = Counter()
    by_host: dict[str, set[str]] = {}
    for session in sessions:
        for request in session.requests:
            cells[request.host, request.outcome] += 1
            by_host.setdefault(request.host, set()).add(session.name)
    of_outcome: Counter[str] = Counter()
    of_host: Counter[str] = Counter()
    for (host, outcome), count in cells.items():
        of_outcome[outcome] += count
        of_host[host] += count
    outcomes = sorted(of_outcome, key=lambda name: (name != "allowed", -of_outcome[name], name))
    hosts = sorted(of_host, key=lambda name: (-of_host[name], name))
    return (
        tuple(
            HostView(
                host=host,
                counts=tuple(cells[host, outcome] for outcome in outcomes),
                sessions=len(by_host[host]),
            )
            for host in hosts
        ),
        tuple(outcomes),
    )
