"""Verdicts that lie in a batch, held to themselves and to what judging gives again. Pure.

They are a reading of the evidence and not a part of it: whoever has the file of disciplines makes
the same again, so no statement names them and a batch may be judged after it was signed.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from recorder.disciplines.sessions import (
    LOG,
    RECORD,
    BatchVerdicts,
    SessionVerdicts,
    encode_verdicts,
    log_of,
)
from recorder.evidence.verification_fault import Fault
from recorder.plain_file import decode


@dataclass(frozen=True)
class Judged:
    """``faults`` of the two files, and what is said beside them."""

    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def verify_judged(
    record: bytes | None,
    log: bytes | None,
    ended: Collection[str],
    again: BatchVerdicts | None,
) -> Judged:
    """``record`` and ``log`` are the files' bytes, ``ended`` the batch's sessions that have an end,
    ``again`` the same batch judged again; None where no file of disciplines was given."""
    if record is None:
        return Judged(
            () if log is None else (Fault(RECORD, "", f"is missing, and {LOG} is there"),), ()
        )
    try:
        read = decode(record, BatchVerdicts)
    except msgspec.MsgspecError as error:
        return Judged((Fault(RECORD, "", f"holds no verdicts of a batch: {error}"),), ())
    faults: list[Fault] = []
    if encode_verdicts(read) != record:
        faults.append(Fault(RECORD, "", "is not in the form in which a recorder writes it"))
    if log is None:
        faults.append(Fault(LOG, "", f"is missing, and {RECORD} is there"))
    elif log != log_of(read).encode():
        faults.append(Fault(LOG, *_first_difference(log, log_of(read).encode())))
    named = [session.session for session in read.sessions]
    faults += [
        Fault(RECORD, f"sessions.{name}", "no session of the batch ended under that name")
        for name in sorted(set(named) - set(ended))
    ]
    notes = [
        f"not judged: {name} ended after the batch was judged"
        for name in sorted(set(ended) - set(named))
    ]
    if again is None:
        notes.append(
            f"not verified: {RECORD} is what {read.digest} judged of these files: give it with "
            "--disciplines, and it is judged again"
        )
        return Judged(tuple(faults), tuple(notes))
    faults += _differences(read, again)
    if not faults:
        count = sum(len(session.verdicts) for session in read.sessions)
        notes.append(f"judged again by {read.digest}: the same {count} verdicts")
    return Judged(tuple(faults), tuple(notes))


def _differences(read: BatchVerdicts, again: BatchVerdicts) -> list[Fault]:
    if read.digest != again.digest:
        return [Fault(RECORD, "digest", f"is {read.digest}, and --disciplines is {again.digest}")]
    faults = [
        Fault(RECORD, member, "is not what the file of disciplines has")
        for member in ("disciplines", "drafts")
        if getattr(read, member) != getattr(again, member)
    ]
    fresh = {session.session: session for session in again.sessions}
    for session in read.sessions:
        own = fresh.get(session.session)
        if own is not None and own != session:
            faults.append(Fault(RECORD, *_differing(session, own)))
    return faults


def _differing(read: SessionVerdicts, again: SessionVerdicts) -> tuple[str, str]:
    """The first member of a session that judging it again gives otherwise."""
    what = "is not what judging gives again; trees that were named to it are named with --corpus"
    where = f"sessions.{read.session}"
    for member in SessionVerdicts.__struct_fields__:
        if getattr(read, member) == getattr(again, member):
            continue
        if member == "verdicts" and len(read.verdicts) == len(again.verdicts):
            pairs = enumerate(zip(read.verdicts, again.verdicts, strict=True))
            number = next(number for number, (one, other) in pairs if one != other)
            return f"{where}.verdicts[{number}]", what
        return f"{where}.{member}", what
    return where, what


def _first_difference(found: bytes, derived: bytes) -> tuple[str, str]:
    lines = derived.split(b"\n")
    for number, line in enumerate(found.split(b"\n"), start=1):
        if number > len(lines) or line != lines[number - 1]:
            return f"line {number}", f"is not what {RECORD} gives"
    return "", f"ends before what {RECORD} gives"
