"""A session's calls with their inputs, times, ends and actors, read from its stream.

The transform keeps of a call what an event holds; a declaration needs its whole input, so the
stream is read once more here. Nothing of what the model wrote beside its calls is kept.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from recorder.disciplines.values import ABSENT, parse_json
from recorder.stream.lines import replace_lone_surrogates, split_lines

SHELL_TOOL = "Bash"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCall:
    """One call in stream order.

    ``line`` and ``result_line`` count from 1. ``succeeded``: its first result came and is no
    error. ``actor``: ``{}`` in the main session, ``{"agentType": ..}`` in a subagent, ABSENT
    where the stream does not say which. ``at_ms`` is None where its line has no time.
    """

    line: int
    id: str
    tool: str
    arguments: dict[str, Any]
    actor: Any
    at_ms: int | None
    result_line: int | None = None
    succeeded: bool = False


@dataclass(frozen=True, slots=True)
class Spawn:
    """The harness's own record of a subagent that it started."""

    line: int
    record: dict[str, Any]


@dataclass(frozen=True, slots=True)
class UserTurn:
    """What the recorder sent: the task, and nothing else is sent."""

    text: str
    at_ms: int | None


@dataclass(frozen=True, slots=True)
class History:
    """A whole session. ``directory`` is where the harness worked, by its init line."""

    calls: tuple[SessionCall, ...]
    spawns: tuple[Spawn, ...]
    turns: tuple[UserTurn, ...]
    directory: str | None
    last_ms: int | None
    unread_lines: int = 0


class _Block(msgspec.Struct, gc=False):
    type: Any = None
    id: Any = None
    name: Any = None
    tool_use_id: Any = None
    is_error: Any = msgspec.UNSET
    input: msgspec.Raw = msgspec.Raw()


class _Message(msgspec.Struct):
    content: list[_Block] | str | None = None


class _Line(msgspec.Struct):
    type: Any = None
    subtype: Any = None
    timestamp: Any = None
    cwd: Any = None
    parent_tool_use_id: Any = None
    tool_use_id: Any = None
    subagent_type: Any = None
    task_type: Any = None
    description: Any = None
    message: _Message | str | None = None


_DECODER = msgspec.json.Decoder(_Line)


@dataclass(slots=True)
class _Reading:
    calls: list[SessionCall] = field(default_factory=list)
    spawns: list[Spawn] = field(default_factory=list)
    results: dict[str, tuple[int, bool]] = field(default_factory=dict)
    directory: str | None = None
    last_ms: int | None = None
    unread: int = 0

    def take(self, line: bytes | bytearray, number: int) -> None:
        try:
            try:
                read = _DECODER.decode(line)
            except msgspec.ValidationError:
                raise
            except msgspec.DecodeError:
                repaired = replace_lone_surrogates(line)
                if repaired is None:
                    raise
                read = _DECODER.decode(repaired)
        except (msgspec.DecodeError, RecursionError):
            self.unread += 1
            return
        at_ms = milliseconds(read.timestamp)
        self.last_ms = at_ms if at_ms is not None else self.last_ms
        if read.type == "system":
            self._system(read, number)
        elif isinstance(read.message, _Message) and isinstance(read.message.content, list):
            for block in read.message.content:
                if read.type == "assistant" and block.type == "tool_use":
                    self._call(read, block, number, at_ms)
                elif read.type == "user" and block.type == "tool_result":
                    self._result(block, number)

    def _system(self, read: _Line, number: int) -> None:
        if read.subtype == "init" and isinstance(read.cwd, str):
            self.directory = self.directory or read.cwd
        elif read.subtype == "task_started" and isinstance(read.subagent_type, str):
            record = {"agentType": read.subagent_type, "toolUseId": read.tool_use_id}
            if isinstance(read.description, str):
                record["description"] = read.description
            self.spawns.append(Spawn(number, record))

    def _call(self, read: _Line, block: _Block, number: int, at_ms: int | None) -> None:
        try:
            arguments = parse_json(str(memoryview(block.input), "utf-8"))
        except ValueError:
            arguments = None
        self.calls.append(
            SessionCall(
                line=number,
                id=block.id if isinstance(block.id, str) else "",
                tool=block.name if isinstance(block.name, str) else "",
                arguments=arguments if isinstance(arguments, dict) else {},
                actor=self._actor(read),
                at_ms=at_ms,
            )
        )

    def _actor(self, read: _Line) -> Any:
        if read.parent_tool_use_id is None:
            return {}
        if isinstance(read.subagent_type, str):
            return {"agentType": read.subagent_type}
        # An older harness names the call alone that started the subagent.
        for spawn in self.spawns:
            if spawn.record["toolUseId"] == read.parent_tool_use_id:
                return {"agentType": spawn.record["agentType"]}
        for call in self.calls:
            kind = call.arguments.get("subagent_type")
            if call.id == read.parent_tool_use_id and isinstance(kind, str):
                return {"agentType": kind}
        return ABSENT

    def _result(self, block: _Block, number: int) -> None:
        if isinstance(block.tool_use_id, str) and block.tool_use_id not in self.results:
            # Anything but an absent or false `is_error` is no success.
            good = block.is_error is msgspec.UNSET or block.is_error is False
            self.results[block.tool_use_id] = (number, good)

    def ended(self) -> tuple[SessionCall, ...]:
        found = []
        for call in self.calls:
            line, good = self.results.get(call.id, (None, False))
            found.append(replace(call, result_line=line, succeeded=good))
        return tuple(found)


def read_history(chunks: Iterable[bytes], turns: Iterable[UserTurn]) -> History:
    """Read a stream given in chunks of any size. ``turns``: what the recorder sent."""
    reading = _Reading()
    for number, (line, _) in enumerate(split_lines(chunks), start=1):
        if line.strip(b" \t\r"):
            reading.take(line, number)
    return History(
        reading.ended(),
        tuple(reading.spawns),
        tuple(turns),
        reading.directory,
        reading.last_ms,
        reading.unread,
    )


def milliseconds(timestamp: Any) -> int | None:
    """An ISO time with its zone as milliseconds since 1970; None for anything else."""
    if not isinstance(timestamp, str):
        return None
    try:
        at = datetime.datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    return None if at.tzinfo is None else round(at.timestamp() * 1000)
