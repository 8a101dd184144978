"""The two sides of a comparison, read from their directories. The part of it that touches files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from recorder.plain_file import read_plain
from recorder.refusal import ExitCode, Refusal
from recorder.report.comparison import Side
from recorder.report.reading import is_batch, is_session, read_batch
from recorder.report.session_view import is_earlier_attempt

# Longer values are named by their digest: an order is one of hundreds of sessions.
SHOWN = 200


def read_side(named: str, label: str) -> Side:
    """A side as it was named: a directory, or ``DIRECTORY:ARM`` for one arm (or line) of it.

    An earlier attempt is no session of its own: it is left out. Refusal 2 where there is no such
    directory or arm.
    """
    directory, arm = _place(named)
    view = read_batch(directory)
    named_lines = {line.number for line in view.lines if line.number and line.name == arm}
    sessions = tuple(
        session
        for session in view.sessions
        if (arm in (None, session.arm) or session.line in named_lines)
        and not is_earlier_attempt(session.name)
    )
    if arm is not None and not sessions:
        known = sorted({line.arm for line in view.lines} | {line.name for line in view.lines})
        raise Refusal(
            ExitCode.USAGE,
            f"{named}: no session of {directory} is of `{arm}`: it has {', '.join(known)}",
        )
    numbers = {session.line for session in sessions}
    pinned = _document(directory / "batch.json")
    construction = _document(directory / "evidence" / "construction.json")

    def pins(by_arm: bool) -> Mapping[str, str]:
        return dict(_pins(pinned, construction, numbers, by_arm))

    return Side(
        label=f"{label}: {directory.absolute().name}{'' if arm is None else f' {arm}'}",
        probes=view.probes,
        sessions=sessions,
        pins=pins,
    )


def _place(named: str) -> tuple[Path, str | None]:
    whole = Path(named)
    if is_batch(whole) or is_session(whole):
        return whole, None
    place, colon, arm = named.rpartition(":")
    if colon and (is_batch(Path(place)) or is_session(Path(place))):
        return Path(place), arm
    raise Refusal(
        ExitCode.USAGE,
        f"{named}: is no batch's directory (it has no sessions/): name one, or DIRECTORY:ARM",
    )


def _document(path: Path) -> Mapping[str, Any]:
    """A JSON object's members; none where there is no such file. Refusal 19 for anything else."""
    try:
        found = json.loads(read_plain(path))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise Refusal(ExitCode.CORRUPT, f"{path}: is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refusal(ExitCode.CORRUPT, f"{path}: is no JSON object")
    return found


def _pins(
    pinned: Mapping[str, Any],
    construction: Mapping[str, Any],
    numbers: set[int],
    by_arm: bool,
) -> Iterator[tuple[str, str]]:
    for member, value in pinned.items():
        if member != "lines":
            yield member, _value(value)
    lines = pinned.get("lines")
    for number, line in enumerate(lines if isinstance(lines, list) else (), start=1):
        if number not in numbers or not isinstance(line, dict):
            continue
        name = f"{line.get('tier')} {line.get('arm')}" if by_arm else str(line.get("tier"))
        for member, value in line.items():
            if by_arm or member != "arm":
                yield f"{member} of {name}", _value(value)
    if "recorder_package" in construction:
        yield "files of the recorder", _value(construction["recorder_package"])
    for kind, what in (("files", "file"), ("engine", "engine")):
        found = construction.get(kind)
        for member, value in (found if isinstance(found, dict) else {}).items():
            yield f"{what} {member}", _value(value)


def _value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    if len(text) <= SHOWN:
        return text
    many = f"{len(value)} members, " if isinstance(value, list | dict) else ""
    return f"{many}sha256:{hashlib.sha256(text.encode('utf-8', 'surrogatepass')).hexdigest()}"
