"""What ``recorder judge`` found in a batch, as a report shows it: which call broke what. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from recorder.disciplines.rates import Rate, rates_by_arm
from recorder.disciplines.sessions import BatchVerdicts, SessionVerdicts
from recorder.plain_file import decode
from recorder.report.view import BreakView, CallView
from recorder.report.visible import one_line
from recorder.stream.observation import Observation

UNJUDGEABLE = "unjudgeable"


def read_verdicts(data: bytes) -> BatchVerdicts:
    """Verdicts as they were written. Raises ``msgspec.MsgspecError`` for any other text."""
    return decode(data, BatchVerdicts)


def breaks_of(session: SessionVerdicts) -> tuple[BreakView, ...]:
    """Every verdict that was broken, in the session's order; the whole session's come last."""
    return tuple(
        BreakView(
            discipline=one_line(verdict.discipline),
            call=verdict.call,
            subject=one_line(verdict.subject),
            event=one_line(verdict.event),
        )
        for verdict in session.verdicts
        if verdict.broken
    )


def events_of(session: SessionVerdicts) -> Mapping[str, int]:
    """How many verdicts came to which event; what could not be judged is apart from a break."""
    counts = Counter(
        UNJUDGEABLE if verdict.unjudgeable is not None else verdict.event
        for verdict in session.verdicts
    )
    return {one_line(event): count for event, count in sorted(counts.items())}


def strangers(session: SessionVerdicts, observation: Observation | None) -> str | None:
    """Why the verdicts are not of this stream; None where each names a call that is there."""
    lines = [call.line for call in observation.calls] if observation is not None else []
    for verdict in session.verdicts:
        number = verdict.call
        if number is not None and (
            not 0 < number <= len(lines) or lines[number - 1] != verdict.line
        ):
            return f"its call {number} is not in raw.jsonl at line {verdict.line}: judge it again"
    return None


def marked(calls: Sequence[CallView], breaks: Sequence[BreakView]) -> tuple[CallView, ...]:
    """The calls, each with what it broke."""
    broken: dict[int, list[str]] = {}
    for each in breaks:
        if each.call is not None:
            broken.setdefault(each.call, []).append(each.discipline)
    return tuple(
        msgspec.structs.replace(call, breaks=tuple(dict.fromkeys(broken[call.number])))
        if call.number in broken
        else call
        for call in calls
    )


def discipline_rates(batch: BatchVerdicts) -> tuple[Rate, ...]:
    """The rates by arm, with names that stand in one line."""
    return tuple(
        msgspec.structs.replace(
            rate,
            discipline=one_line(rate.discipline),
            tier=one_line(rate.tier),
            arm=one_line(rate.arm),
        )
        for rate in rates_by_arm(batch)
    )
