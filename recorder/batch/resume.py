"""What becomes of a session when its batch is run again, by what its ledger says. Pure.

A session is run again by itself only where evidence says that its latest attempt reached no
provider, or that a limit or an outage ended it before anything was spent. An attempt without an end
is never taken for a recording: for a while nobody watched its channel. A rehearsal spends nothing,
so its sessions without an end run again too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from recorder.ledger.entries import Why
from recorder.ledger.state import Attempt
from recorder.refusal import ExitCode, Refusal

Over = Literal["recorded", "failed", "left-out", "uncertain"]


@dataclass(frozen=True)
class Due:
    """An attempt that is to be run."""

    attempt: int
    why: Why


def due_of(
    attempts: Sequence[Attempt], *, rehearsal: bool, retry_failed: bool, retry_halted: bool = False
) -> Due | Over:
    """The next attempt of a session, or why it has none.

    ``retry_failed`` and ``retry_halted`` are a person's word that failed sessions, or those that a
    halt ended, run again though they spent.
    """
    if not attempts:
        return Due(1, "first")
    latest = attempts[-1]
    following = latest.number + 1
    standing = latest.standing
    if standing == "recorded" or standing == "left-out":
        return standing
    if standing == "again":
        return Due(following, "decided")
    if latest.requests == 0:
        return Due(following, "unspent")
    if standing == "failed":
        if latest.halted is not None and (latest.spent_nothing or rehearsal):
            return Due(following, "unspent")
        if latest.halted is not None and retry_halted:
            return Due(following, "halted")
        return Due(following, "retry") if retry_failed else "failed"
    return Due(following, "rehearsal") if rehearsal else "uncertain"


def refuse_uncertain(sessions: Iterable[str], out: Path) -> None:
    """Refusal 18 where sessions wait for a decision."""
    names = list(sessions)
    if names:
        raise Refusal(
            ExitCode.UNCERTAIN,
            f"{', '.join(names)}: started without an end, and may have spent: see "
            f"`recorder batch reconcile {out}`, and decide with --again NAME or --leave-out NAME, "
            "and --reason TEXT",
        )
