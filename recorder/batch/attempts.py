"""Where the attempts of a session lie, and what the files of one without an end say.

``sessions/NAME`` holds the latest attempt, ``sessions/NAME.attempt-N`` an earlier one. Between the
moving aside and the next start a driver can end, so the latest may lie aside too.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path

from recorder.batch.assembly import refuse_link
from recorder.durable import sync_directory
from recorder.evidence.accounting import account_of, account_without_end
from recorder.evidence.pricing import PriceTable
from recorder.ledger.chain import digest_of
from recorder.ledger.entries import SessionEgress
from recorder.ledger.state import State
from recorder.refusal import ExitCode, Refusal

LOG = "egress.jsonl"
STARTED = "started"
# What the collection of leftovers keeps of a sidecar that was started ahead of its session's turn.
OF_NO_SESSION = frozenset(
    {
        LOG,
        "outcome.json",
        *(
            f"leftover-{role}.{suffix}"
            for role in ("sidecar", "session")
            for suffix in ("json", "error")
        ),
    }
)


def aside_of(directory: Path, attempt: int) -> Path:
    """Where an attempt of the session of ``directory`` is kept once another follows it."""
    return directory.with_name(f"{directory.name}.attempt-{attempt}")


def place_of(directory: Path, attempt: int, latest: int) -> Path:
    """Where an attempt's files are."""
    aside = aside_of(directory, attempt)
    return aside if attempt != latest or aside.exists() else directory


def make_room(directory: Path, attempt: int, prices: PriceTable) -> None:
    """Leave a session's directory to an attempt: what an earlier one left goes aside, whole.

    Refusal 19 for files that no attempt explains, and for a link.
    """
    refuse_link(directory.parent)
    refuse_link(directory)
    if attempt > 1:
        aside = aside_of(directory, attempt - 1)
        refuse_link(aside)
        if not aside.exists():
            if directory.exists():
                directory.rename(aside)
            else:
                # It came to no file. The directory says that this was looked at.
                aside.mkdir(mode=0o700, parents=True)
            sync_directory(directory.parent)
    if not directory.exists():
        return
    names = {path.name for path in directory.iterdir()}
    log = directory / LOG
    sent = account_of(log.read_bytes(), prices).requests if LOG in names else 0
    if not names <= OF_NO_SESSION or sent:
        raise Refusal(
            ExitCode.CORRUPT,
            f"{directory}: holds files, and the ledger knows of no session that left them: move "
            "the directory away",
        )
    for name in names:
        (directory / name).unlink()


def refuse_unexplained(sessions: Path, state: State) -> None:
    """Refusal 19 for a session's files that the ledger says nothing of."""
    refuse_link(sessions)
    if not sessions.exists():
        return
    for entry in sorted(os.scandir(sessions), key=lambda entry: entry.name):
        if entry.is_symlink():
            refuse_link(Path(entry.path))
        name, mark, number = entry.name.rpartition(".attempt-")
        known = len(state.sessions.get(name if mark else entry.name, ()))
        # A directory without a ``started`` or a stream is what a sidecar left that had no turn yet.
        if known == 0 or (mark and not (number.isdigit() and int(number) <= known)):
            begun = any((Path(entry.path) / name).exists() for name in (STARTED, "raw.jsonl"))
            if mark or begun:
                raise Refusal(
                    ExitCode.CORRUPT,
                    f"{entry.path}: the ledger knows of no such session: it is not this batch's; "
                    "move it away",
                )


def refuse_lost(sessions: Path, ended: Iterable[str], state: State) -> None:
    """Refusal 19 for a session that ended and whose directory is gone, before more is spent.

    What is in the directories is held to the ledger when the batch is assembled.
    """
    names = set(os.listdir(sessions)) if sessions.exists() else set()  # noqa: PTH208 - 20,000
    for name in ended:
        if name in names:
            continue
        latest = len(state.sessions[name])
        if aside_of(sessions / name, latest).name not in names:
            raise Refusal(
                ExitCode.CORRUPT,
                f"{sessions / name}: is missing, and the ledger says that it ended: put it back",
            )


def egress_of(place: Path, session: str, attempt: int, prices: PriceTable) -> SessionEgress:
    """What the log of an attempt without an end says. ``place`` holds all that is left of it."""
    log = _bytes(place / LOG)
    account = account_without_end(log, (place / STARTED).exists(), prices)
    return SessionEgress(
        session=session,
        attempt=attempt,
        sha256=None if log is None else digest_of(log),
        whole=account.whole,
        requests=account.requests,
        cost=account.estimate,
        tokens=account.tokens,
    )


def durable_files(directory: Path) -> dict[str, str]:
    """Every file below a session's directory by its relative name, with its digest; all on disk.

    Whoever wrote a file of the directory itself put it on disk, and evidence.json last of all; the
    copies below are put there here. A link and what is no plain file are left out: a driver makes
    none.
    """
    return dict(sorted(_digests(directory, "")))


def _digests(directory: Path, prefix: str) -> Iterator[tuple[str, str]]:
    for entry in os.scandir(directory):
        mode = entry.stat(follow_symlinks=False).st_mode
        if stat.S_ISDIR(mode):
            yield from _digests(Path(entry.path), f"{prefix}{entry.name}/")
        elif stat.S_ISREG(mode):
            descriptor = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                if prefix:
                    os.fsync(descriptor)
            yield f"{prefix}{entry.name}", f"sha256:{digest}"
    if prefix:
        sync_directory(directory)


def _bytes(path: Path) -> bytes | None:
    refuse_link(path)
    try:
        return path.read_bytes()
    except FileNotFoundError:
        # No sidecar came to a log, or it was lost with its container: the caller says which.
        return None
