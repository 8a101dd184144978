"""The egress logs of a session or a batch, read and verified. Pure but for reading the files.

A log is believed where its chain holds from its opening to its closing line, where every line is
of the published schema, and where it is its own session's by the session's evidence.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import msgspec

from proxy.egress import read
from recorder.plain_file import decode, read_plain
from recorder.refusal import ExitCode, Refusal

LOG = "egress.jsonl"
EVIDENCE = "evidence.json"
STREAM = "raw.jsonl"
SESSIONS = "sessions"

# A session that ran again keeps its earlier directory beside it under such a name.
_ATTEMPT = re.compile(r"\.attempt-\d+\Z")


class _Egress(msgspec.Struct, frozen=True):
    policy: str


class _Evidence(msgspec.Struct, frozen=True):
    """The members of evidence.json that say whose log it is and that it was the one way out."""

    session: str
    rehearsal: bool
    session_container: Mapping[str, Any]
    egress: _Egress


@dataclass(frozen=True)
class SessionLog:
    """One session's log.

    ``faults``: every reason not to believe the log, each with its file and line. ``unproven``:
    every reason why the log, however whole, may not be all that left. ``rehearsal`` is None where
    no evidence says.
    """

    name: str
    path: Path
    lines: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]
    unproven: tuple[str, ...] = ()
    rehearsal: bool | None = None


@dataclass(frozen=True)
class Logs:
    """Every session of a directory, by name. ``unstarted``: directories in which none ran."""

    directory: Path
    sessions: tuple[SessionLog, ...]
    unstarted: tuple[str, ...] = ()

    @property
    def faults(self) -> tuple[str, ...]:
        return tuple(fault for session in self.sessions for fault in session.faults)

    @property
    def unproven(self) -> tuple[str, ...]:
        return tuple(why for session in self.sessions for why in session.unproven)


def read_logs(directory: Path) -> Logs:
    """The logs of a batch's directory or of one session's.

    Refusal 2 where it is neither's.
    """
    if (directory / SESSIONS).is_dir():
        places = sorted(place for place in (directory / SESSIONS).iterdir() if place.is_dir())
        started = [place for place in places if _ran(place)]
        return Logs(
            directory,
            tuple(_session(place, _ATTEMPT.sub("", place.name)) for place in started),
            tuple(place.name for place in places if place not in started),
        )
    if not _ran(directory):
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: is neither a batch's directory (no {SESSIONS}/) nor a session's (no "
            f"{LOG}): name one",
        )
    return Logs(directory, (_session(directory, None),))


def _ran(place: Path) -> bool:
    """The stream's file is made before the start, so without it no session can have spoken."""
    return any((place / name).exists() for name in (LOG, STREAM, EVIDENCE))


def _session(place: Path, name: str | None) -> SessionLog:
    path = place / LOG
    evidence, unproven = _evidence(place / EVIDENCE)
    rehearsal = evidence.rehearsal if evidence else None
    try:
        data = read_plain(path)
    except FileNotFoundError:
        fault = f"{path}: is absent: the session ran, and nothing says what left"
        return SessionLog(place.name, path, (), (fault,), unproven, rehearsal)
    reading = read(data.splitlines(keepends=True))
    faults = [f"{path}, {fault}" for fault in reading.faults]
    faults += [
        f"{path}, line {number}: {fault}"
        for number, line in enumerate(reading.lines, start=1)
        for fault in schema_faults(line)
    ]
    first = reading.lines[0] if reading.lines else {}
    own = evidence.session if evidence else name
    if own is not None and first.get("session") != own:
        faults.append(f"{path}, line 1: is the log of {first.get('session')!r} and not of {own!r}")
    if evidence and evidence.egress.policy != first.get("policy"):
        faults.append(f"{path}, line 1: was kept under another policy than {EVIDENCE} names")
    return SessionLog(place.name, path, reading.lines, tuple(faults), unproven, rehearsal)


def _evidence(path: Path) -> tuple[_Evidence | None, tuple[str, ...]]:
    """What the evidence says, and why the log may not be all that left."""
    try:
        evidence = decode(read_plain(path), _Evidence)
    except FileNotFoundError:
        return None, (f"{path}: is absent, so nothing says that the socket was the one way out",)
    except msgspec.MsgspecError as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is not the evidence of a session: {error}") from (
            error
        )
    host = evidence.session_container.get("HostConfig")
    network = host.get("NetworkMode") if isinstance(host, Mapping) else None
    if network != "none":
        return evidence, (f"{path}: the session's container had the network {network!r}",)
    return evidence, ()


def published_schema() -> dict[str, Any]:
    """The JSON Schema of a log's line, as the project ships it."""
    text = resources.files("proxy").joinpath("egress.schema.json").read_text("utf-8")
    schema = json.loads(text)
    assert isinstance(schema, dict)  # noqa: S101 - the project's own file
    return schema


@cache
def _validator() -> Any:
    # Imported where it is used: it takes 0.1 s, which no other verb should pay.
    from jsonschema import Draft202012Validator

    return Draft202012Validator(published_schema())


def schema_faults(line: Mapping[str, Any]) -> Iterator[str]:
    """Where a line is not of the schema: the member, and why. At most one fault a line."""
    error = next(_validator().iter_errors(line), None)
    if error is not None:
        member = error.json_path.removeprefix("$").removeprefix(".") or "the line"
        yield f"{member}: {error.message[:200]}"
