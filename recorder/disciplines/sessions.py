"""Judges recorded sessions: reads what a batch keeps of each, and nothing else.

A batch keeps digests of the tree that a session started from, the texts of it that sessions
changed, and the bytes of what they produced. Other texts of the baseline come from trees that the
caller names. Each is held to the arm's manifest; one that nothing has is unproven, never guessed.
"""

# Names are bytes here, and pathlib holds none.
# ruff: noqa: PTH118

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from recorder.batch.before import BEFORE
from recorder.disciplines.declaration import Disciplines, Entry
from recorder.disciplines.history import History, SessionCall, UserTurn, read_history
from recorder.disciplines.judging import Memo, World
from recorder.disciplines.protection import LABEL, protection_verdict
from recorder.disciplines.replay import Ended, Replay, Tree, replay
from recorder.disciplines.verdicts import (
    RECORDED_CALL,
    RECORDED_SESSION,
    Verdict,
    row,
    verdict_of,
    verdicts_of,
)
from recorder.plain_file import decode, open_plain, read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import WORKSPACE
from recorder.transcript.checker import check
from recorder.transcript.contract import Event
from recorder.transform.produced import Places
from recorder.workspace.manifest import (
    Entry as ManifestEntry,
)
from recorder.workspace.manifest import (
    Manifest,
    digest_of,
    read_blocks,
    read_manifest,
)
from recorder.workspace.names import path_text

SCHEMA = "recorder.disciplines/1"
LOG = "disciplines.log"
RECORD = "disciplines.json"
READ_SIZE = 1 << 20
TEXT_LIMIT = 64 << 20


class _Left(msgspec.Struct, frozen=True):
    path: str


class _Workspace(msgspec.Struct, frozen=True):
    added: tuple[str, ...]
    changed: tuple[str, ...]
    removed: tuple[str, ...] | None
    excluded: tuple[_Left, ...] = ()
    left: tuple[_Left, ...] = ()
    not_read: tuple[_Left, ...] = ()
    stopped: str | None = None


class _Refused(msgspec.Struct, frozen=True):
    code: int


class _Evidence(msgspec.Struct, frozen=True):
    """The members of evidence.json that say what a session was given and what it left."""

    session: str
    probe: str
    tier: str
    arm: str
    rehearsal: bool
    argv: tuple[str, ...]
    guard: dict[str, Any] | None
    workspace: _Workspace | None
    refusal: _Refused | None


@dataclass(frozen=True)
class Kept:
    """One session as its directory holds it; ``event`` is None where it was refused."""

    directory: Path
    evidence: _Evidence
    event: Event | None


def read_kept(directory: Path) -> Kept | None:
    """The session of a directory; None where none ended there. Refusal 19 for a broken file."""
    path = directory / "evidence.json"
    if not path.exists():
        return None
    try:
        evidence = decode(read_plain(path), _Evidence)
    except msgspec.MsgspecError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{path}: is not the evidence of a session: {error}"
        ) from error
    if evidence.refusal is not None:
        return Kept(directory, evidence, None)
    record = directory / "record.md"
    try:
        text = read_plain(record).decode("utf-8")
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{record}: is missing, and {path} says that the session recorded"
        ) from error
    except UnicodeDecodeError as error:
        raise Refusal(
            ExitCode.CORRUPT, f"{record}: is not UTF-8 (byte {error.start + 1})"
        ) from error
    return Kept(directory, evidence, check(text, str(record)).events[0])


class Broke(msgspec.Struct, frozen=True, kw_only=True):
    """A relation that failed: how many elements it failed on, and the message."""

    id: str
    total: int
    message: str


class VerdictRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One verdict on a session's timeline.

    ``call`` counts the session's calls from 1 and is None for the whole session; ``line`` is the
    call's in the stream. ``succeeded`` is the call's own end: a call that failed is judged as it
    was asked for. ``at_ms`` counts from 1970.
    """

    discipline: str
    event: str
    subject: str
    call: int | None
    line: int | None
    tool: str | None
    succeeded: bool | None
    at_ms: int
    skip: str | None
    unjudgeable: str | None
    broke: tuple[Broke, ...]
    message: str | None
    fifth: str | None

    @property
    def broken(self) -> bool:
        return bool(self.broke) and self.event != "witnessed"


class SessionVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """A session as judged. ``not_judged`` says why none of it was, else None.

    ``unproven``: paths on which replay and workspace disagree. ``unattributed``: changed paths
    that no call is seen to write. ``calls``: how many there were.
    """

    session: str
    probe: str
    tier: str
    arm: str
    rehearsal: bool
    calls: int
    unproven: tuple[str, ...]
    unattributed: tuple[str, ...]
    not_judged: str | None
    verdicts: tuple[VerdictRecord, ...]

    @property
    def first_break(self) -> VerdictRecord | None:
        """The first call that broke a discipline; the whole session comes after every call."""
        return next((verdict for verdict in self.verdicts if verdict.broken), None)


class BatchVerdicts(msgspec.Struct, frozen=True, kw_only=True):
    """disciplines.json. ``disciplines`` are the entries' identifiers in the file's order."""

    schema: str
    file: str
    digest: str
    disciplines: tuple[str, ...]
    drafts: tuple[str, ...]
    sessions: tuple[SessionVerdicts, ...]


def judge_batch(
    directory: Path, disciplines: Disciplines, trees: Sequence[Path] = ()
) -> BatchVerdicts:
    """Judge every session of a batch's directory, or the one of a session's. Writes nothing."""
    folder = directory / "sessions"
    listed = [directory] if not folder.is_dir() else sorted(folder.iterdir())
    sessions: list[SessionVerdicts] = []
    for each in listed:
        if not each.is_dir() or ".attempt-" in each.name:
            continue
        kept = read_kept(each)
        if kept is not None:
            sessions.append(judge_session(kept, disciplines, trees))
    if not sessions:
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: holds no session that ended; name a batch's or a session's directory",
        )
    return BatchVerdicts(
        schema=SCHEMA,
        file=disciplines.name,
        digest=disciplines.digest,
        disciplines=(
            *(entry.id for entry in disciplines.entries),
            *((LABEL,) if disciplines.protected else ()),
        ),
        drafts=tuple(draft.id for draft in disciplines.drafts),
        sessions=tuple(sessions),
    )


def judge_session(
    kept: Kept, disciplines: Disciplines, trees: Sequence[Path] = ()
) -> SessionVerdicts:
    """Judge one recorded session, call by call and as a whole.

    One that was refused is not judged: nothing says that its stream is its own. Refusal 19 where
    its arm's manifest is broken, 2 where there is none.
    """
    evidence = kept.evidence
    why = None
    if kept.event is None:
        why = f"it was refused with {evidence.refusal.code if evidence.refusal else 13}"
    elif evidence.workspace is None:
        why = "its workspace was not read"
    if why is not None or evidence.workspace is None:
        return _session(kept, 0, (), (), why, ())
    history = read_history(_chunks(kept.directory / "raw.jsonl"), (_task(kept),))
    if history.unread_lines:
        raise Refusal(
            ExitCode.OBSERVATION,
            f"{kept.directory / 'raw.jsonl'}: {history.unread_lines} lines cannot be read, so its "
            "calls are not known; run `recorder transform` over it to see which",
        )
    places = Places(tuple(dict.fromkeys((WORKSPACE, history.directory or WORKSPACE))))
    replayed = replay(history, _baseline(kept, trees), _ended(kept), places)
    return _session(
        kept,
        len(history.calls),
        replayed.unproven,
        tuple(str(world.path) for world in replayed.unattributed),
        None,
        tuple(verdicts(history, replayed, disciplines)),
    )


def _session(
    kept: Kept,
    calls: int,
    unproven: tuple[str, ...],
    unattributed: tuple[str, ...],
    not_judged: str | None,
    found: tuple[VerdictRecord, ...],
) -> SessionVerdicts:
    evidence = kept.evidence
    return SessionVerdicts(
        session=evidence.session,
        probe=evidence.probe,
        tier=evidence.tier,
        arm=evidence.arm,
        rehearsal=evidence.rehearsal,
        calls=calls,
        unproven=unproven,
        unattributed=unattributed,
        not_judged=not_judged,
        verdicts=found,
    )


def verdicts(
    history: History, replayed: Replay, disciplines: Disciplines
) -> Iterator[VerdictRecord]:
    """Every verdict of a replayed session, in order: its calls, then the whole of it.

    A declaration that reads ``changes`` is judged on the whole session, every other on each call.
    """
    memo = Memo()
    entries = disciplines.entries
    whole = [e for e in entries if e.declaration is not None and e.declaration.reads_changes]
    each = [entry for entry in entries if entry not in whole]
    start = next((turn.at_ms for turn in history.turns if turn.at_ms is not None), None)
    at_ms = start if start is not None else history.last_ms or 0
    for observation in replayed.observations:
        call = observation.call
        at_ms = call.at_ms if call.at_ms is not None else at_ms
        protected = protection_verdict(disciplines.protected, call.tool, call.arguments)
        if protected is not None:
            yield _record(protected, at_ms, observation.number, call)
        for verdict in verdicts_of(each, observation.worlds, RECORDED_CALL, memo):
            yield _record(verdict, at_ms, observation.number, call)
    at_ms = history.last_ms if history.last_ms is not None else at_ms
    for verdict in verdicts_of(whole, replayed.whole, RECORDED_SESSION, memo):
        yield _record(verdict, at_ms, None, None)
    for world in replayed.unattributed:
        yield from _unattributed(each, world, at_ms, memo)


def _unattributed(
    entries: Sequence[Entry], world: World, at_ms: int, memo: Memo
) -> Iterator[VerdictRecord]:
    """A change whose call is not known: nothing judged it, and that is said."""
    for entry in entries:
        verdict = verdict_of(entry, [world], RECORDED_CALL, memo)
        if verdict is not None:
            said = Verdict(verdict.entry, "unattributed", world.subject)
            yield _record(said, at_ms, None, None)


def _record(
    verdict: Verdict, at_ms: int, number: int | None, call: SessionCall | None
) -> VerdictRecord:
    return VerdictRecord(
        discipline=verdict.entry,
        event=verdict.event,
        subject=verdict.subject,
        call=number,
        line=None if call is None else call.line,
        tool=None if call is None else call.tool,
        succeeded=None if call is None else call.succeeded,
        at_ms=at_ms,
        skip=verdict.skip,
        unjudgeable=verdict.unjudgeable,
        broke=tuple(
            Broke(id=each.id, total=len(each.violators), message=each.message)
            for each in verdict.breaks
        ),
        message=verdict.message,
        fifth=verdict.fifth,
    )


def encode_verdicts(batch: BatchVerdicts) -> bytes:
    """disciplines.json: members in declared order, two spaces, a newline at the end."""
    return msgspec.json.format(msgspec.json.encode(batch), indent=2) + b"\n"


def log_of(batch: BatchVerdicts) -> str:
    """disciplines.log: every row of every session, each subject under its session's name."""
    return "".join(
        row(
            verdict.at_ms,
            verdict.event,
            verdict.discipline,
            f"{session.session}:{verdict.subject}",
            verdict.fifth,
        )
        + "\n"
        for session in batch.sessions
        for verdict in session.verdicts
    )


# Reading what a batch keeps ------------------------------------------------------------------


def _chunks(path: Path) -> Iterator[bytes]:
    with open_plain(path) as file:
        while chunk := file.read(READ_SIZE):
            yield chunk


def _task(kept: Kept) -> UserTurn:
    """The task as the recorder gave it: the last word of the harness's command line."""
    started = (kept.evidence.guard or {}).get("started")
    at_ms = round(started * 1000) if isinstance(started, (int, float)) else None
    return UserTurn(kept.evidence.argv[-1] if kept.evidence.argv else "", at_ms)


def manifest_path(directory: Path) -> Path | None:
    """The manifest of the arm that a session of a batch started from."""
    arms = directory.parent.parent / "arms"
    named = [p for p in arms.glob("*.manifest") if directory.name.startswith(f"{p.stem}-")]
    return max(named, key=lambda path: len(path.stem), default=None)


def _baseline(kept: Kept, trees: Sequence[Path]) -> Tree:
    path = manifest_path(kept.directory)
    if path is None:
        raise Refusal(
            ExitCode.USAGE,
            f"{kept.directory}: no manifest of its arm is beside it, so what it started from is "
            "not known; name a session inside its batch's directory",
        )
    try:
        manifest = read_manifest(read_plain(path).decode("utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not UTF-8 (byte {error.start + 1})") from error
    return tree_of(manifest, trees, kept_content(path.parent / BEFORE))


def tree_of(
    manifest: Manifest,
    trees: Sequence[Path],
    kept: Callable[[str], bytes | None] = lambda _: None,
) -> Tree:
    """A manifest's tree, the texts of its files from what is ``kept`` by digest, or from any
    directory that holds the same bytes."""
    files = {path_text(e.path): e for e in manifest.entries if not e.is_link}

    def content(path: str) -> bytes | None:
        entry = files[path]
        texts = (_same_file(tree, entry) for tree in trees)
        found = next((text for text in texts if text is not None), None)
        return kept(entry.sha256) if found is None else found

    return Tree({path: entry.sha256 for path, entry in files.items()}, content)


def _same_file(tree: Path, entry: ManifestEntry) -> bytes | None:
    full = os.path.join(os.fsencode(tree), entry.path)
    if entry.size > TEXT_LIMIT or not os.path.isfile(full) or os.path.islink(full):  # noqa: PTH113, PTH114
        return None
    content = b"".join(read_blocks(full))
    return content if digest_of(content) == entry.sha256 else None


def _ended(kept: Kept) -> Ended:
    workspace = kept.evidence.workspace
    event = kept.event
    if workspace is None or event is None:
        raise ValueError("a session that was recorded has a workspace and an event")
    produced = event.produced if isinstance(event.produced, tuple) else ()
    known = {artifact.path: artifact.result or None for artifact in produced}
    digests = {path: known.get(path) for path in (*workspace.added, *workspace.changed)}
    digests.update({left.path: None for left in workspace.left})
    unread = {item.path for item in (*workspace.excluded, *workspace.not_read)}
    complete = (
        workspace.removed is not None and workspace.stopped is None and not (workspace.not_read)
    )
    return Ended(
        digests,
        frozenset(workspace.removed or ()),
        complete,
        frozenset(unread),
        kept_content(kept.directory / "produced"),
    )


def kept_content(directory: Path) -> Callable[[str], bytes | None]:
    """The kept bytes of a digest, of a session's ``produced`` directory."""

    def content(digest: str) -> bytes | None:
        path = directory / digest.removeprefix("sha256:")
        if not path.is_file() or path.stat().st_size > TEXT_LIMIT:
            return None
        kept = path.read_bytes()
        return kept if digest_of(kept) == digest else None

    return content
