"""Where a batch stands after a driver: its exit code, and how a person goes on. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from recorder.batch.resume import Due, Over
from recorder.batch.rounds import Round
from recorder.refusal import ExitCode

NAMED = 10
"""So many sessions are named in one line."""


@dataclass(frozen=True)
class Standing:
    """``reasons`` are lines for standard error, none where everything is done."""

    code: ExitCode
    reasons: tuple[str, ...] = ()


def standing_of(
    sessions: Mapping[str, Due | Over],
    last: Round,
    *,
    halted: Collection[str],
    canary: Sequence[str],
    out: Path,
) -> Standing:
    """What a person has to decide goes before what another run would do by itself.

    ``halted`` are the failed sessions that a limit or an outage ended; ``canary`` those that wait
    to be accepted, empty where none does.
    """
    own = {
        standing: [name for name, each in sessions.items() if each == standing]
        for standing in ("uncertain", "failed")
    }
    due = [name for name, each in sessions.items() if isinstance(each, Due)]
    over = len(sessions) - len(due) - len(own["uncertain"])
    if own["uncertain"]:
        where = f"see `recorder batch reconcile {out}`"
        uncertain = f"{named(own['uncertain'])}: without an end, and may have spent: {where}"
        return Standing(ExitCode.UNCERTAIN, (uncertain,))
    failed = [name for name in own["failed"] if name not in halted]
    if failed:
        return Standing(ExitCode.FAILED, (_failed(failed, len(sessions), out),))
    rest = (
        f"{over} of {len(sessions)} sessions are over, {len(due)} remain: run the same command "
        "again"
    )
    if last.halt is not None:
        # A disk that is full has one code, whoever finds it.
        code = ExitCode.CAP if last.halt.rule.name == "disk" else ExitCode.LEFT
        return Standing(code, (f"halted, {last.halt.said()}", rest))
    if canary and not set(canary) & set(due):
        return Standing(ExitCode.LEFT, (_canary(canary, out),))
    refused = {priced.session: refusal.said(priced) for priced, refusal in last.refused}
    if due and refused.keys() >= set(due):
        more = len(due) - 1
        return Standing(
            ExitCode.CAP,
            (f"{refused[due[0]]}{f' (and {more} more like it)' if more else ''}: raise the cap",),
        )
    if due:
        return Standing(ExitCode.LEFT, (rest,))
    if own["failed"]:
        return Standing(ExitCode.FAILED, (_failed(own["failed"], len(sessions), out),))
    return Standing(ExitCode.DONE)


def named(sessions: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    more = len(sessions) - NAMED
    return ", ".join(sessions[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _failed(failed: Sequence[str], of: int, out: Path) -> str:
    return (
        f"{len(failed)} of {of} sessions failed to record: {named(failed)}: "
        f"{out}/sessions/NAME/evidence.json says why; to record them again run the same batch with "
        "--retry failed"
    )


def _canary(canary: Sequence[str], out: Path) -> str:
    return (
        f"the canary of {len(canary)} sessions is over and waits: look at {named(canary)} in "
        f"{out}/sessions, then `recorder batch accept {out}` and run the same command again"
    )
