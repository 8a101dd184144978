"""The egress log: one JSON line a decision, hash-chained, on disk before anything leaves.

Kinds of lines, in the order of a session's life: `open`, the sidecar's own `canary`, then
`decision` and `answer`, last `close` with the count. Every line has the members of
`egress.schema.json`; `previous` is the SHA-256 of the line before it (without its newline), so a
line that was changed, added or taken out shows, and a log without its `close` line was cut.
No bodies, no credentials, no prose.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCHEMA = "recorder-egress"
VERSION = 1
START = "sha256:" + "0" * 64
LONGEST_VALUE = 200
# A log this long takes nothing more but its closing line: the policy's own bound, under which no
# request leaves, with room for the refusals after it. The driver reads 256 MiB.
LONGEST_LOG = 192 * 1024 * 1024

_UNSAFE = re.compile(r"[^A-Za-z0-9._~:/?=&+,;@!*()\[\]-]")


class EgressError(OSError):
    """The log cannot be written any more. Nothing may pass from here on."""


def safe(value: str, longest: int = LONGEST_VALUE) -> str:
    """A value of the session's in characters that no reader of the log can be fooled by.

    Others are written as %XX of their UTF-8 bytes (so is % itself); what is longer than `longest`
    characters is cut and says how long it was: `abc[cut 5000]`.
    """
    cut = value[:longest]
    text = _UNSAFE.sub(
        lambda found: "".join(
            f"%{byte:02X}" for byte in found.group().encode("utf-8", "surrogatepass")
        ),
        cut,
    )
    return text if len(value) <= longest else f"{text}[cut {len(value)}]"


def utc_now() -> str:
    """The time as the log writes it: UTC, milliseconds, `2025-06-01T12:00:00.000Z`."""
    now = datetime.datetime.now(datetime.UTC)
    return now.strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"


class EgressLog:
    """The one writer of a session's egress log."""

    def __init__(self, path: Path, session: str, clock: Callable[[], str] = utc_now) -> None:
        """Create the file; it may not exist yet: one log is one sidecar's.

        Raises:
            EgressError: it cannot be created.
        """
        self._session = session
        self._clock = clock
        self._previous = START
        self._count = 0
        self._size = 0
        self._unwritten = 0
        self._decisions = {"allowed": 0, "refused": 0}
        self._unsynced = False
        self._broken = False
        self._closed = False
        try:
            self._descriptor = os.open(
                path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
            )
        except OSError as error:
            raise EgressError(error.errno, f"the egress log cannot be created: {error}") from error

    @property
    def count(self) -> int:
        """Lines written so far."""
        return self._count

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return self._size

    @property
    def full(self) -> bool:
        """Whether it takes nothing more but its closing line."""
        return self._size >= LONGEST_LOG

    def pass_over(self) -> None:
        """Count what came when the log was full; the closing line says how often."""
        self._unwritten += 1

    def append(self, kind: str, members: Mapping[str, Any], *, durable: bool) -> None:
        """Write one line; with `durable` it is on disk when this returns.

        Raises:
            EgressError: it could not be written, now or before: a log with a hole is not a log.
        """
        if self._broken or self._closed:
            raise EgressError("the egress log is closed")
        if self.full and kind != "close":
            self.pass_over()
            raise EgressError("the egress log is full")
        line = json.dumps(
            {
                "schema": SCHEMA,
                "version": VERSION,
                "session": self._session,
                "sequence": self._count + 1,
                "time": self._clock(),
                "kind": kind,
                **members,
                "previous": self._previous,
            },
            ensure_ascii=True,
            separators=(",", ":"),
        ).encode("ascii")
        try:
            written = os.write(self._descriptor, line + b"\n")
            if written != len(line) + 1:
                raise OSError("a line was written in part")
            if durable:
                os.fdatasync(self._descriptor)
        except OSError as error:
            self._broken = True
            raise EgressError(error.errno, f"the egress log cannot be written: {error}") from error
        self._count += 1
        self._size += len(line) + 1
        self._previous = digest_of_line(line)
        if kind == "decision":
            self._decisions[members["decision"]] += 1

    def close(self, members: Mapping[str, Any]) -> None:
        """Write the closing line. A broken log is left as it is: cut, and seen to be cut."""
        if self._closed:
            return
        if not self._broken:
            counts = {"count": self._count + 1, **self._decisions}
            if self._unwritten:
                counts["unwritten"] = self._unwritten
            self.append("close", {**counts, **members}, durable=True)
        self._closed = True
        os.close(self._descriptor)


def digest_of_line(line: bytes) -> str:
    """What the next line carries as `previous`. `line` has no newline."""
    return "sha256:" + hashlib.sha256(line).hexdigest()


@dataclass(frozen=True)
class Reading:
    """A log as it was read. `faults`: every reason not to believe it, each with its line number."""

    lines: tuple[Mapping[str, Any], ...]
    faults: tuple[str, ...]

    @property
    def decisions(self) -> tuple[Mapping[str, Any], ...]:
        return tuple(
            line for line in self.lines if line["kind"] == "decision" and "decision" in line
        )

    @property
    def allowed(self) -> int:
        return sum(line["decision"] == "allowed" for line in self.decisions)

    @property
    def refused(self) -> int:
        return sum(line["decision"] == "refused" for line in self.decisions)


def read(lines: Iterable[bytes]) -> Reading:
    """Read and verify a log: chain, sequence, one session, an opening and a closing line."""
    found: list[Mapping[str, Any]] = []
    faults: list[str] = []
    previous = START
    session: object = None
    for number, raw in enumerate(lines, start=1):
        if not raw.endswith(b"\n"):
            faults.append(f"line {number}: cut")
        line = raw.rstrip(b"\n")
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or not isinstance(value.get("kind"), str):
            faults.append(f"line {number}: not a line of an egress log")
            previous = digest_of_line(line)
            continue
        session = value.get("session") if number == 1 else session
        for wrong, why in (
            (value.get("schema") != SCHEMA or value.get("version") != VERSION, "another schema"),
            (value.get("session") != session, "of another session"),
            (value.get("sequence") != number, f"sequence is {value.get('sequence')!r}"),
            (value.get("previous") != previous, "does not follow from the line before it"),
            ((value["kind"] == "open") != (number == 1), "an opening line belongs first, once"),
            (bool(found) and found[-1]["kind"] == "close", "stands after the closing line"),
            (
                value["kind"] == "decision" and value.get("decision") not in ("allowed", "refused"),
                "a decision without its outcome",
            ),
        ):
            if wrong:
                faults.append(f"line {number}: {why}")
        previous = digest_of_line(line)
        found.append(value)
    reading = Reading(tuple(found), tuple(faults))
    if not found or found[-1]["kind"] != "close":
        faults.append("no closing line: the log was cut")
    elif (
        found[-1].get("count") != len(found)
        or found[-1].get("allowed") != reading.allowed
        or found[-1].get("refused") != reading.refused
    ):
        faults.append("the closing line counts other lines than there are")
    elif found[-1].get("unwritten"):
        faults.append("the log was full, and what came after is not in it")
    return Reading(tuple(found), tuple(faults))
