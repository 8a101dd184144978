"""A batch's directory, or one session's, read into a view. The one part that touches files.

Nothing is written, nothing is run, no link is followed out of the directory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from recorder.batch.before import BEFORE
from recorder.batch.schedule import count, slots
from recorder.disciplines.sessions import RECORD as VERDICTS
from recorder.disciplines.sessions import BatchVerdicts, SessionVerdicts
from recorder.plain_file import decode, read_plain
from recorder.plan.reading import PlanText, read_plan
from recorder.refusal import ExitCode, Refusal
from recorder.report.batch_view import PlannedLine, batch_view, examined_digests
from recorder.report.judged import discipline_rates, read_verdicts
from recorder.report.limits import WHOLE, Limits
from recorder.report.session_view import SessionFiles, Shared, Slot, session_view
from recorder.report.view import BatchView, Fact, SessionView
from recorder.report.visible import one_line
from recorder.workspace.manifest import read_manifest
from recorder.workspace.names import path_text

BATCH = "batch.json"
SESSIONS = "sessions"
SESSION_FILES = ("evidence.json", "raw.jsonl", "egress.jsonl", "record.md", "started")
DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    tier: str
    arm: str
    probes: tuple[str, ...]
    repetitions: int


class _Batch(msgspec.Struct, frozen=True, kw_only=True):
    """The members of batch.json that a report reads."""

    seed: int
    lines: tuple[_Line, ...]
    recorder: str = ""
    model: str | None = None
    rehearsal: str | None = None
    session_image: str = ""
    sidecar_image: str = ""
    order: tuple[str, ...] = ()


class _Construction(msgspec.Struct, frozen=True, kw_only=True):
    at: str = ""
    attempts: tuple[dict[str, object], ...] = ()


@dataclass(frozen=True)
class _Place:
    slot: Slot
    directory: Path


def read_batch(directory: Path, limits: Limits | None = None) -> BatchView:
    """The view of a batch's directory or of a session's.

    Refusal 2 where it is neither's, 19 where batch.json cannot be read.
    """
    limits = limits or Limits()
    shared = Shared()
    if not is_batch(directory):
        if not is_session(directory):
            raise Refusal(
                ExitCode.USAGE,
                f"{directory}: is neither a batch's directory (no {SESSIONS}/) nor a session's "
                "(no evidence.json, raw.jsonl or egress.jsonl): name one",
            )
        return _view(directory, directory.name, None, [_own(directory)], shared, limits)
    batch = _batch(directory / BATCH)
    places = list(_places(directory, batch))
    return _view(directory, directory.absolute().name, batch, places, shared, limits)


def is_batch(directory: Path) -> bool:
    return (directory / SESSIONS).is_dir()


def is_session(directory: Path) -> bool:
    return any((directory / name).is_file() for name in SESSION_FILES)


def read_one(place: Path) -> SessionView:
    """The view of one session, whole: by its directory, or by one of the files in it.

    A stream or a log that lies alone is shown as what it is. Refusal 2 for anything else.
    """
    if place.is_dir() and is_session(place):
        batch = place.absolute().parent.parent
        judged = _verdicts(batch, []) if place.absolute().parent.name == SESSIONS else None
        own = _own(place).slot
        return session_view(
            _files(place), own, Shared(), WHOLE, judged=_by_session(judged).get(own.name)
        )
    if place.name in SESSION_FILES and is_session(place.parent):
        return read_one(place.parent)
    if place.is_file() and place.suffix == ".jsonl":
        data = _read(place)
        is_log = data is not None and data.startswith(b'{"schema":"recorder-egress"')
        files = SessionFiles(
            started=True,
            evidence=None,
            record=None,
            raw=None if is_log else data,
            egress=data if is_log else None,
            kept=lambda _: None,
        )
        return session_view(files, Slot(place.name), Shared(), WHOLE)
    raise Refusal(
        ExitCode.USAGE,
        f"{place}: is no session's directory and none of its files "
        f"({', '.join(SESSION_FILES[:-1])}): name one, or a batch's directory",
    )


def _view(
    directory: Path,
    title: str,
    batch: _Batch | None,
    places: Sequence[_Place],
    shared: Shared,
    limits: Limits,
) -> BatchView:
    notes: list[str] = []
    lines = _lines(directory, batch, notes)
    plans = {line.number: line.plan for line in lines}
    verdicts = _verdicts(directory, notes)
    judged = _by_session(verdicts)
    sessions = [
        session_view(
            _files(place.directory),
            place.slot,
            shared,
            limits,
            examined=examined_digests(plans.get(place.slot.line), place.slot.probe),
            judged=judged.get(place.slot.name),
        )
        for place in places
    ]
    return batch_view(
        title,
        lines,
        sessions,
        shared,
        facts=[*_facts(directory, batch), *_judged_by(verdicts)],
        notes=notes,
        limits=limits.said(),
        disciplines=() if verdicts is None else discipline_rates(verdicts),
    )


def _own(directory: Path) -> _Place:
    return _Place(Slot(directory.absolute().name), directory)


def _batch(path: Path) -> _Batch | None:
    data = _read(path)
    if data is None:
        return None
    try:
        return decode(data, _Batch)
    except msgspec.MsgspecError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not a batch's own record: {error}") from error


def _places(directory: Path, batch: _Batch | None) -> Iterator[_Place]:
    """Every session that was planned, in its line's order, then every other directory there is."""
    planned: list[Slot] = []
    if batch is not None:
        members = [
            (line.tier, line.arm, len(line.probes), line.repetitions) for line in batch.lines
        ]
        if batch.order and count(members) != len(batch.order):
            raise Refusal(
                ExitCode.CORRUPT,
                f"{directory / BATCH}: its order does not name what its lines plan",
            )
        ordered = sorted(
            slots(members, batch.seed), key=lambda slot: (slot.line, slot.position, slot.repetition)
        )
        for slot in ordered:
            line = batch.lines[slot.line - 1]
            planned.append(
                Slot(
                    slot.name,
                    slot.line,
                    line.tier,
                    line.arm,
                    line.probes[slot.position - 1],
                    slot.repetition,
                )
            )
    names = {slot.name for slot in planned}
    for own in planned:
        yield _Place(own, directory / SESSIONS / own.name)
    for place in sorted((directory / SESSIONS).iterdir()):
        if place.name not in names and place.is_dir() and not place.is_symlink():
            yield _Place(Slot(place.name), place)


def _lines(directory: Path, batch: _Batch | None, notes: list[str]) -> tuple[PlannedLine, ...]:
    found = []
    for number, line in enumerate(batch.lines if batch else (), start=1):
        name = f"L{number}-{line.tier}-{line.arm}"
        found.append(
            PlannedLine(
                number, name, line.tier, line.arm, _plan(directory / "plans" / f"{name}.txt", notes)
            )
        )
    return tuple(found)


def _plan(path: Path, notes: list[str]) -> PlanText | None:
    data = _read(path)
    if data is None:
        notes.append(f"{path.name}: the plan is not there, so declared answers are not known")
        return None
    try:
        return read_plan(data.decode("utf-8"), path.name)
    except UnicodeDecodeError:
        notes.append(f"{path.name}: the plan is not UTF-8")
    except Refusal as refusal:
        notes.extend(refusal.reasons)
    return None


def _facts(directory: Path, batch: _Batch | None) -> Iterator[Fact]:
    if batch is not None:
        for name, value in (
            ("model", batch.model),
            ("recorder", batch.recorder),
            ("seed", batch.seed),
            ("session image", batch.session_image),
            ("sidecar image", batch.sidecar_image),
            ("rehearsal script", batch.rehearsal),
        ):
            if value not in (None, ""):
                yield Fact(name, one_line(str(value)))
    data = _read(directory / "evidence" / "construction.json")
    if data is None:
        return
    try:
        construction = decode(data, _Construction)
    except msgspec.MsgspecError:
        yield Fact("attack list", "its result cannot be read")
        return
    tried = len(construction.attempts)
    is_open = sum(bool(attempt.get("open")) for attempt in construction.attempts)
    yield Fact("attack list", one_line(f"{is_open} of {tried} open, run at {construction.at}"))


def _verdicts(directory: Path, notes: list[str]) -> BatchVerdicts | None:
    """What ``recorder judge`` left in a batch; None where it was not judged."""
    try:
        data = _read(directory / VERDICTS)
        return None if data is None else read_verdicts(data)
    except (OSError, msgspec.MsgspecError) as error:
        notes.append(f"{VERDICTS}: holds no verdicts that can be read ({error}): judge it again")
    return None


def _by_session(verdicts: BatchVerdicts | None) -> Mapping[str, SessionVerdicts]:
    return {each.session: each for each in verdicts.sessions} if verdicts is not None else {}


def _judged_by(verdicts: BatchVerdicts | None) -> Iterator[Fact]:
    if verdicts is not None:
        yield Fact("judged by disciplines", one_line(verdicts.digest))


def _files(directory: Path) -> SessionFiles:
    unreadable: list[str] = []

    def read(name: str) -> bytes | None:
        try:
            return _read(directory / name)
        except OSError as error:
            unreadable.append(f"{name}: {error.strerror}")
        return None

    def kept(digest: str) -> bytes | None:
        if DIGEST.fullmatch(digest) is None:
            return None
        try:
            return _read(directory / "produced" / digest.removeprefix("sha256:"))
        except OSError:
            return None

    evidence, record, raw, egress = (
        read(name) for name in ("evidence.json", "record.md", "raw.jsonl", "egress.jsonl")
    )
    texts = _texts_before(directory)

    def before(path: str) -> bytes | None:
        digest = texts.get(path)
        if digest is None:
            return None
        try:
            return _read(directory.parent.parent / "arms" / BEFORE / digest)
        except OSError:
            return None

    return SessionFiles(
        started=(directory / "started").is_file(),
        evidence=evidence,
        record=record,
        raw=raw,
        egress=egress,
        kept=kept,
        unreadable=tuple(unreadable),
        before=before,
    )


def _texts_before(directory: Path) -> Mapping[str, str]:
    """The arm's own files of a session of a batch, by path: the hex of their digests.

    Empty where the batch keeps no text of an arm, or no manifest says which is whose.
    """
    arms = directory.parent.parent / "arms"
    if not (arms / BEFORE).is_dir():
        return {}
    for path in arms.glob("*.manifest"):
        if directory.name.startswith(f"{path.stem}-p"):
            return _digests(path)
    return {}


@lru_cache(maxsize=64)
def _digests(path: Path) -> Mapping[str, str]:
    try:
        manifest = read_manifest((_read(path) or b"").decode("utf-8"), path.name)
    except (OSError, UnicodeDecodeError, ValueError, Refusal):
        return {}  # Its own fault is verification's to tell; here no text is shown.
    return {
        path_text(entry.path): entry.sha256.removeprefix("sha256:")
        for entry in manifest.entries
        if not entry.is_link
    }


def _read(path: Path) -> bytes | None:
    """A plain file's bytes; None where nothing is there. ``OSError`` for a link or a FIFO."""
    try:
        return read_plain(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
