"""A person's word on a canary: the sessions that ran first and alone."""

from __future__ import annotations

from pathlib import Path

import msgspec

from recorder.batch.batch import held
from recorder.batch.pinned import Pinned
from recorder.batch.standing import named
from recorder.ledger.entries import BatchAccept
from recorder.ledger.journal import open_journal, read_state
from recorder.ledger.state import State
from recorder.plain_file import decode, read_plain
from recorder.refusal import ExitCode, Refusal


def accept_canary(
    directory: Path, reason: str | None = None, *, failed: bool = False
) -> tuple[str, ...]:
    """Write into the ledger that the canary is accepted; the sessions that it was.

    Refusal 2 where no batch waits for that, 15 while sessions of it are to run, 17 where some
    failed and ``failed`` does not take them too, 20 while a driver holds the batch.
    """
    if read_state(directory) is None:
        raise Refusal(ExitCode.USAGE, f"{directory}: holds no ledger.jsonl: name a batch's --out")
    with held(directory), open_journal(directory) as journal:
        sessions = _canary_of(directory, journal.state)
        standings = {name: journal.state.standing(name) for name in sessions}
        missing = [name for name in sessions if standings[name] in ("missing", "unended", "again")]
        if missing:
            raise Refusal(
                ExitCode.LEFT,
                f"{directory}: {named(missing)} of the canary did not end yet: run the batch first",
            )
        lost = [name for name in sessions if standings[name] == "failed"]
        if lost and not failed:
            raise Refusal(
                ExitCode.FAILED,
                f"{directory}: {named(lost)} of the canary failed: record them again with --retry "
                "failed, or accept them with --failed",
            )
        journal.append(BatchAccept(sessions=sessions, reason=reason))
    return sessions


def _canary_of(directory: Path, state: State) -> tuple[str, ...]:
    asked = state.canary
    if asked is None:
        raise Refusal(ExitCode.USAGE, f"{directory}: has no canary: there is nothing to accept")
    if state.accepted is not None:
        raise Refusal(ExitCode.USAGE, f"{directory}: its canary is accepted already")
    path = directory / "batch.json"
    try:
        return decode(read_plain(path), Pinned).order[:asked]
    except (OSError, msgspec.MsgspecError) as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not a batch's own record: {error}") from error
