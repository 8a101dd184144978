"""Two batches, or two arms, side by side: what both have is compared, and nothing else. Pure.

A group is a probe in a tier, and in an arm too unless each side has one arm alone: then the arms
are what is compared. Sessions of a group that one side lacks are named and not counted, and groups
are never summed, because the sides need not have the same number of sessions in each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import quantiles

from recorder.report.batch_view import COUNTED, counted_answers
from recorder.report.comparison_view import (
    Alone,
    Changed,
    ChangedFile,
    ComparisonView,
    Group,
    Measure,
    Pin,
    Point,
    RateDifference,
    Share,
    SideView,
    Spread,
)
from recorder.report.interval import newcombe, wilson
from recorder.report.view import OUTCOMES, FileView, ProbeView, SessionView
from recorder.report.visible import one_line

# A file is of the session's making where it is one of these.
MADE = frozenset({"added", "changed", "named"})


@dataclass(frozen=True)
class Side:
    """``pins``: what was pinned, by name; the arm is in a name only where ``arms`` are several."""

    label: str
    probes: tuple[ProbeView, ...]
    sessions: tuple[SessionView, ...]
    pins: Callable[[bool], Mapping[str, str]]

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(sorted({session.arm for session in self.sessions}))


def comparison_view(a: Side, b: Side) -> ComparisonView:
    """Side ``b`` held against side ``a``."""
    by_arm = not (len(a.arms) == 1 and len(b.arms) == 1)
    groups_a, groups_b = (_grouped(side.sessions, by_arm) for side in (a, b))
    shared = sorted(set(groups_a) & set(groups_b), key=_order)
    pairs = [(groups_a[group], groups_b[group]) for group in shared]
    return ComparisonView(
        title=one_line(f"{a.label} and {b.label}"),
        rehearsal=any(session.rehearsal for side in (a, b) for session in side.sessions),
        a=_side(a, [session for own, _ in pairs for session in own]),
        b=_side(b, [session for _, own in pairs for session in own]),
        groups=tuple(shared),
        alone=tuple(
            Alone(side=label, group=group.name, sessions=len(own[group]))
            for label, own, other in (("A", groups_a, groups_b), ("B", groups_b, groups_a))
            for group in sorted(set(own) - set(other), key=_order)
        ),
        rates=tuple(
            rate
            for number, (group, pair) in enumerate(zip(shared, pairs, strict=True))
            for rate in _rates(number, _answers(group.probe, a, b), *pair)
        ),
        measures=tuple(
            _measure(number, name, of, *pair)
            for number, pair in enumerate(pairs)
            for name, of in MEASURES.items()
        ),
        files=tuple(file for number, pair in enumerate(pairs) for file in _files(number, *pair)),
        pins=tuple(_pins(a.pins(by_arm), b.pins(by_arm))),
        points=tuple(
            Point(
                side=label,
                group=number,
                session=session.name,
                dollars=session.dollars,
                seconds=session.seconds,
                calls=session.call_count,
            )
            for number, pair in enumerate(pairs)
            for label, own in zip("AB", pair, strict=True)
            for session in _ran(own)
        ),
        notes=tuple(_notes(a, b, shared)),
        limits="",
    )


def _grouped(sessions: Sequence[SessionView], by_arm: bool) -> dict[Group, list[SessionView]]:
    groups: dict[Group, list[SessionView]] = {}
    for session in sessions:
        arm = session.arm if by_arm else ""
        group = Group(tier=session.tier, arm=arm, probe=session.probe)
        groups.setdefault(group, []).append(session)
    return groups


def _order(group: Group) -> tuple[str, str, str]:
    return group.tier, group.probe, group.arm


def _side(side: Side, sessions: Sequence[SessionView]) -> SideView:
    counts = Counter(session.outcome for session in sessions)
    return SideView(
        label=one_line(side.label),
        arms=side.arms,
        rehearsal=any(session.rehearsal for session in side.sessions),
        sessions=len(sessions),
        outcomes={outcome: counts[outcome] for outcome in OUTCOMES},
    )


def _ran(sessions: Sequence[SessionView]) -> list[SessionView]:
    return [session for session in sessions if session.outcome != "not run"]


# Rates.


def _probe(probes: Sequence[ProbeView], identifier: str) -> ProbeView | None:
    return next((probe for probe in probes if probe.id == identifier), None)


def _answers(identifier: str, a: Side, b: Side) -> tuple[str, ...]:
    """The answers that either side's plan declares, in the first one's order."""
    found = [_probe(side.probes, identifier) for side in (a, b)]
    return tuple(dict.fromkeys(name for probe in found if probe for name in probe.answers))


def _rates(
    number: int, declared: Sequence[str], a: Sequence[SessionView], b: Sequence[SessionView]
) -> list[RateDifference]:
    recorded = [[session for session in own if session.outcome in COUNTED] for own in (a, b)]
    seen = {s.answer for own in recorded for s in own if s.answer_known and s.answer is not None}
    answers = [*declared, *sorted(seen - set(declared))]
    first, second = (counted_answers(answers, own) for own in recorded)
    return [
        _difference(number, what, first.get(what, (0, 0)), second.get(what, (0, 0)))
        for what in dict.fromkeys((*first, *second))
    ]


def _difference(number: int, what: str, a: tuple[int, int], b: tuple[int, int]) -> RateDifference:
    interval = newcombe(a, b)
    low, high = interval if interval is not None else (None, None)
    return RateDifference(
        group=number,
        what=what,
        a=_share(*a),
        b=_share(*b),
        difference=None if interval is None else b[0] / b[1] - a[0] / a[1],
        low=low,
        high=high,
    )


def _share(count: int, total: int) -> Share:
    low, high = wilson(count, total) or (None, None)
    return Share(count=count, total=total, low=low, high=high)


# Measures.


def _files_of(session: SessionView) -> list[FileView] | None:
    if session.files is None:
        return None
    return [file for file in session.files if file.kind in MADE and file.digest]


def _file_count(session: SessionView) -> float | None:
    files = _files_of(session)
    return None if files is None else len(files)


def _line_count(session: SessionView) -> float | None:
    files = _files_of(session)
    if files is None or any(file.added is None or file.removed is None for file in files):
        return None
    return sum((file.added or 0) + (file.removed or 0) for file in files)


MEASURES: Mapping[str, Callable[[SessionView], float | None]] = {
    "cost, dollars": lambda session: session.dollars,
    "time, seconds": lambda session: session.seconds,
    "calls": lambda session: session.call_count,
    "files made or changed": _file_count,
    "lines added or removed": _line_count,
}


def _measure(
    number: int,
    name: str,
    of: Callable[[SessionView], float | None],
    a: Sequence[SessionView],
    b: Sequence[SessionView],
) -> Measure:
    first, second = (_spread([of(session) for session in _ran(own)]) for own in (a, b))
    known = first.median is not None and second.median is not None
    return Measure(
        group=number,
        name=name,
        a=first,
        b=second,
        difference=(second.median or 0) - (first.median or 0) if known else None,
    )


def _spread(values: Sequence[float | None]) -> Spread:
    known = [value for value in values if value is not None]
    low = middle = high = known[0] if known else None
    if len(known) > 1:
        low, middle, high = quantiles(known, n=4, method="inclusive")
    return Spread(
        known=len(known),
        unknown=len(values) - len(known),
        total=sum(known),
        low=low,
        median=middle,
        high=high,
    )


# Files and pins.


def _files(number: int, a: Sequence[SessionView], b: Sequence[SessionView]) -> list[ChangedFile]:
    first, second = _changed(a), _changed(b)
    none = Changed(sessions=0, added=0, removed=0, untold=0)
    return [
        ChangedFile(group=number, path=path, a=first.get(path, none), b=second.get(path, none))
        for path in sorted(set(first) | set(second))
    ]


def _changed(sessions: Sequence[SessionView]) -> dict[str, Changed]:
    found: dict[str, list[FileView]] = {}
    for session in sessions:
        for file in _files_of(session) or ():
            found.setdefault(file.path, []).append(file)
    return {
        path: Changed(
            sessions=len(own),
            added=sum(file.added or 0 for file in own),
            removed=sum(file.removed or 0 for file in own),
            untold=sum(file.added is None for file in own),
        )
        for path, own in found.items()
    }


def _pins(a: Mapping[str, str], b: Mapping[str, str]) -> list[Pin]:
    return [
        Pin(member=one_line(member), a=_shown(a.get(member)), b=_shown(b.get(member)))
        for member in dict.fromkeys((*a, *b))
        if a.get(member) != b.get(member)
    ]


def _shown(value: str | None) -> str | None:
    return None if value is None else one_line(value)


def _notes(a: Side, b: Side, shared: Sequence[Group]) -> list[str]:
    notes = []
    if any(s.rehearsal for s in a.sessions) != any(s.rehearsal for s in b.sessions):
        notes.append("One side is a rehearsal and the other is not: no difference means anything.")
    if not shared:
        notes.append("The two sides have no probe in common, so nothing is compared.")
    for identifier in sorted({group.probe for group in shared}):
        one, other = (_probe(side.probes, identifier) for side in (a, b))
        if one is not None and other is not None and one != other:
            notes.append(f"{identifier} is planned in another way on each side.")
    return [one_line(note) for note in notes]
