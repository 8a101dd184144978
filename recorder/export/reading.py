"""Sessions of a directory as other tools' formats need them: calls, tokens, times and an end.

No words of a model are in it. A call's argument is the contract's own: the path of the document
that it names, else its input as compact JSON. What cannot be believed is not handed on in a form in
which that no longer shows: it is refused (19), and ``recorder verify`` says more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import UNSET

from proxy.egress import read
from recorder.evidence.corroboration_provider import Exchange, provider_witness
from recorder.evidence.corroboration_stream import ShownBlock, stream_witness
from recorder.evidence.document import Evidence
from recorder.plain_file import decode, read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.report.session_view import is_earlier_attempt
from recorder.report.timeline import stamps_of
from recorder.stream.observation import ObservedCall, observe
from recorder.transcript.checker import check
from recorder.transcript.contract import REHEARSAL_PREFIX, Event, Identity

SESSIONS = "sessions"
TOKENS = (
    "input_tokens",
    "output_tokens",
    "cache_creation_input_tokens",
    "cache_read_input_tokens",
)


@dataclass(frozen=True)
class Call:
    """A call with the digest of the document that it named, empty for none."""

    call: ObservedCall
    result: str


@dataclass(frozen=True)
class Turn:
    """One answer of the provider that the harness showed, and the calls it gave.

    ``thread`` is the id of the call whose subagent asked for it, empty for the session's own.
    ``at`` is in seconds since 1970, the harness's own stamp. ``model`` is the one that was served,
    and says so where it is a rehearsal's. ``tokens`` are the provider's by the names of ``TOKENS``,
    empty where the log tells none.
    """

    thread: str
    at: float | None
    model: str | None
    tokens: Mapping[str, int]
    stop_reason: str | None
    request: int | None
    calls: tuple[Call, ...]


@dataclass(frozen=True)
class Exported:
    """One session that has its end. ``event`` and ``identity`` are None for a refused one."""

    evidence: Evidence
    event: Event | None
    identity: Identity | None
    turns: tuple[Turn, ...]
    dollars: float | None

    @property
    def name(self) -> str:
        return self.evidence.session

    @property
    def task(self) -> str:
        """The task that the driver gave, empty where its command shows none."""
        argv = self.evidence.argv
        return argv[-1] if argv[-2:-1] == ("--",) else ""

    @property
    def model(self) -> str | None:
        return self.identity.model if self.identity is not None else None

    @property
    def answer(self) -> str | None:
        answer = self.event.answer if self.event is not None else None
        return answer if isinstance(answer, str) else None

    @property
    def tokens(self) -> Mapping[str, int]:
        return {name: sum(turn.tokens.get(name, 0) for turn in self.turns) for name in TOKENS}


def read_exported(directory: Path, only: Sequence[str] = ()) -> tuple[Exported, ...]:
    """The sessions of a batch's directory, or the one of a session's, that have their end.

    Refusal 2 for what is neither, and for a name of ``only`` that is none of theirs; 19 for files
    that do not hold together.
    """
    if (directory / SESSIONS).is_dir():
        places = sorted(
            place
            for place in (directory / SESSIONS).iterdir()
            if place.is_dir() and not place.is_symlink() and not is_earlier_attempt(place.name)
        )
    elif (directory / "evidence.json").is_file():
        places = [directory]
    else:
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: is neither a batch's directory (no {SESSIONS}/) nor a session's that "
            "has its end (no evidence.json): name one",
        )
    names = {place.absolute().name for place in places}
    for name in only:
        if name not in names:
            raise Refusal(ExitCode.USAGE, f"--session {name}: none of {directory} is named so")
    return tuple(
        _session(place)
        for place in places
        if (not only or place.absolute().name in only) and (place / "evidence.json").is_file()
    )


def _session(place: Path) -> Exported:
    evidence = _evidence(place / "evidence.json")
    raw, log = _bytes(place / "raw.jsonl"), _bytes(place / "egress.jsonl")
    observation = observe([raw])
    stated = observation.result.cost_dollars if observation.result is not None else None
    dollars = None if stated is None else float(stated)
    if evidence.refusal is not None:
        return Exported(evidence, None, None, (), dollars)
    path = place / "record.md"
    checked = check(_text(path), str(path))
    event = checked.events[0]
    recorded = () if event.calls is UNSET else event.calls
    if [(call.tool, call.argument) for call in recorded] != [
        (call.tool, call.argument) for call in observation.calls
    ]:
        raise _corrupt(path, "its calls are not those of raw.jsonl")
    calls = [
        Call(call, told.result) for call, told in zip(observation.calls, recorded, strict=True)
    ]
    exchanges = _exchanges(place / "egress.jsonl", log)
    turns = tuple(_turns(raw, calls, exchanges, rehearsal=evidence.rehearsal))
    return Exported(evidence, event, checked.identity, turns, dollars)


def _turns(
    raw: bytes, calls: Iterable[Call], exchanges: Mapping[str, Exchange], *, rehearsal: bool
) -> Iterator[Turn]:
    """Every answer in the order in which its first block was shown."""
    lines = raw.split(b"\n")
    stamps = stamps_of(lines)
    by_id = {call.call.id: call for call in calls}
    shown: dict[tuple[str, str], list[ShownBlock]] = {}
    for block in stream_witness(lines).blocks:
        # A block of no message is a turn of its own: nothing says whose it is.
        message = block.message or f"line {block.line}"
        shown.setdefault((block.thread, message), []).append(block)
    for (thread, message), blocks in shown.items():
        exchange = exchanges.get(message)
        first = blocks[0]
        told = exchange.usage if exchange is not None else {}
        model = exchange.model_served if exchange is not None else first.model
        if rehearsal and model is not None:
            model = f"{REHEARSAL_PREFIX}{model.removeprefix(REHEARSAL_PREFIX)}"
        ids = [str(block.block.get("id")) for block in blocks if block.kind == "tool_use"]
        yield Turn(
            thread=thread,
            at=stamps.get(first.line),
            model=model,
            tokens={name: told[name] for name in TOKENS if isinstance(told.get(name), int)},
            stop_reason=exchange.stop_reason if exchange is not None else None,
            request=exchange.number if exchange is not None else None,
            calls=tuple(by_id[name] for name in ids if name in by_id),
        )


def _exchanges(path: Path, log: bytes) -> dict[str, Exchange]:
    reading = read(log.splitlines(keepends=True))
    if reading.faults:
        raise Refusal(ExitCode.CORRUPT, *(f"{path}, {fault}" for fault in reading.faults[:3]))
    try:
        witness = provider_witness(reading.lines)
    except (KeyError, TypeError, ValueError) as error:
        raise _corrupt(path, f"is of another version of the log: {error!r}") from error
    return {each.message: each for each in witness.exchanges if each.message is not None}


def started_at(session: Exported) -> float | None:
    """When its guard started it, else the first stamp of its stream; seconds since 1970."""
    stated = (session.evidence.guard or {}).get("started")
    if isinstance(stated, int | float):
        return float(stated)
    return min((turn.at for turn in session.turns if turn.at is not None), default=None)


def _evidence(path: Path) -> Evidence:
    try:
        return decode(_bytes(path), Evidence)
    except msgspec.MsgspecError as error:
        raise _corrupt(path, f"is not the evidence of a session: {error}") from error


def _bytes(path: Path) -> bytes:
    try:
        return read_plain(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise _corrupt(path, "is missing, or is no plain file") from error
    except OSError as error:
        raise _corrupt(path, str(error.strerror)) from error


def _text(path: Path) -> str:
    try:
        return _bytes(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise _corrupt(path, f"is not UTF-8 (byte {error.start + 1})") from error


def _corrupt(path: Path, what: str) -> Refusal:
    return Refusal(ExitCode.CORRUPT, f"{path}: {what}: see `recorder verify`")
