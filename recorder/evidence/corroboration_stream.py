"""What the stream says, read for the join with what the sidecar saw. Pure.

Everything the harness printed of an answer and of what it told back, with the line it stands on.
Lines of other kinds are read only for what the join needs: where a history was made short, which
subagents ran in the background, which hooks changed what a call would do.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from proxy.witness import bare_digest, block_digest, blocks_of, numbers

SYNTHETIC = "<synthetic>"
MAIN = ""
ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
# updatedToolOutput, updatedMCPToolOutput, and what a later harness may call the like.
REPLACES_A_RESULT = re.compile(r"updated\w*(Output|Result|Response)")
REMINDER = "<system-reminder>\n{}\n</system-reminder>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBlock:
    """One assistant block. ``thread`` is the id of the call that runs it, empty for the session's.

    ``first`` marks the first block of its line; usage is what the line says, numbers only.
    """

    line: int
    thread: str
    message: str | None
    request_id: str | None
    model: str | None
    stop_reason: str | None
    stop_sequence: str | None
    role: str | None
    usage: Mapping[str, Any]
    kind: str
    digest: str
    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTold:
    """One block of a user line. ``result`` is the call's id, empty for a text.

    ``reminder`` is the digest of the text as the harness tells its own: inside a reminder.
    """

    line: int
    thread: str
    result: str
    digest: str
    bare: str
    reminder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownResult:
    """A result line, whole."""

    line: int
    members: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWitness:
    """The stream in order. ``unreadable``: lines that are no JSON object, by number.

    ``own_words`` are the harness's own assistant lines (an API error told as an answer).
    """

    blocks: tuple[ShownBlock, ...]
    told: tuple[ShownTold, ...]
    results: tuple[ShownResult, ...]
    own_words: tuple[ShownBlock, ...]
    inits: tuple[int, ...]
    boundaries: tuple[int, ...]
    background: frozenset[str]
    hooks_that_changed_a_call: int
    hooks_that_changed_a_result: int
    sessions: tuple[str, ...]
    session: str | None
    directory: str | None
    unreadable: tuple[int, ...]
    misshapen: tuple[int, ...]


def stream_witness(lines: Iterable[bytes]) -> StreamWitness:
    """Read a stream's lines, with or without their ends."""
    reading = _Reading()
    for number, line in enumerate(lines, start=1):
        if line.strip():
            reading.take(number, line)
    return reading.witness()


class _Reading:
    def __init__(self) -> None:
        self.blocks: list[ShownBlock] = []
        self.told: list[ShownTold] = []
        self.results: list[ShownResult] = []
        self.own_words: list[ShownBlock] = []
        self.inits: list[int] = []
        self.boundaries: list[int] = []
        self.background: set[str] = set()
        self.hooks = 0
        self.result_hooks = 0
        self.sessions: dict[str, None] = {}
        self.session: str | None = None
        self.directory: str | None = None
        self.unreadable: list[int] = []
        self.misshapen: list[int] = []

    def take(self, number: int, line: bytes) -> None:
        try:
            value = json.loads(line, object_pairs_hook=_once)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            self.unreadable.append(number)
            return
        session, parent = value.get("session_id"), value.get("parent_tool_use_id")
        if isinstance(session, str):
            self.sessions[session] = None
        elif value.get("type") in ("assistant", "user", "result"):
            self.misshapen.append(number)
        if not (parent is None or (isinstance(parent, str) and parent)):
            self.misshapen.append(number)
        match value.get("type"):
            case "assistant":
                self._assistant(number, value)
            case "user":
                self._user(number, value)
            case "result":
                self.results.append(ShownResult(line=number, members=value))
            case "system":
                self._system(number, value)

    def _assistant(self, number: int, value: Mapping[str, Any]) -> None:
        message = value.get("message")
        if not isinstance(message, dict):
            self.misshapen.append(number)
            return
        own = message.get("model") == SYNTHETIC
        blocks = list(_blocks(message.get("content")))
        stops = (message.get("stop_reason"), message.get("stop_sequence"))
        if (
            not blocks
            or message.get("type") != "message"
            or any(not isinstance(stop, str | None) for stop in stops)
            or any(not _identified(block) for block in blocks)
        ):
            self.misshapen.append(number)
        usage = message.get("usage")
        for block in blocks:
            shown = ShownBlock(
                line=number,
                thread=_text(value.get("parent_tool_use_id")) or MAIN,
                message=_text(message.get("id")),
                request_id=_text(value.get("request_id")),
                model=_text(message.get("model")),
                stop_reason=_text(message.get("stop_reason")),
                stop_sequence=_text(message.get("stop_sequence")),
                role=_text(message.get("role")),
                usage=numbers(usage) if isinstance(usage, dict) else {},
                kind=str(block.get("type")),
                digest=block_digest(block),
                block=block,
            )
            (self.own_words if own else self.blocks).append(shown)

    def _user(self, number: int, value: Mapping[str, Any]) -> None:
        message = value.get("message")
        if not isinstance(message, dict):
            self.misshapen.append(number)
            return
        for block in _blocks(message.get("content")):
            result = block.get("tool_use_id") if block.get("type") == "tool_result" else ""
            self.told.append(
                ShownTold(
                    line=number,
                    thread=_text(value.get("parent_tool_use_id")) or MAIN,
                    result=_text(result) or "",
                    digest=block_digest(block),
                    bare=bare_digest(block),
                    reminder=block_digest(
                        {"type": "text", "text": REMINDER.format(block.get("text"))}
                    ),
                )
            )

    def _system(self, number: int, value: Mapping[str, Any]) -> None:
        match value.get("subtype"):
            case "init":
                self.inits.append(number)
                if self.session is None:
                    self.session = _text(value.get("session_id"))
                    self.directory = _text(value.get("cwd"))
            case "compact_boundary":
                self.boundaries.append(number)
            case "task_started" if value.get("is_backgrounded") is True:
                if isinstance(call := value.get("tool_use_id"), str):
                    self.background.add(call)
            case "hook_response":
                # What a hook prints is its own; what it changes is in these members or nowhere.
                said = keys_of(value.get("stdout")) | keys_of(value.get("output"))
                match value.get("hook_event"):
                    case "PreToolUse" | "PermissionRequest":
                        self.hooks += "updatedInput" in said
                    case "PostToolUse" | "PostToolUseFailure":
                        self.result_hooks += any(map(REPLACES_A_RESULT.fullmatch, said))

    def witness(self) -> StreamWitness:
        return StreamWitness(
            blocks=tuple(self.blocks),
            told=tuple(self.told),
            results=tuple(self.results),
            own_words=tuple(self.own_words),
            inits=tuple(self.inits),
            boundaries=tuple(self.boundaries),
            background=frozenset(self.background),
            hooks_that_changed_a_call=self.hooks,
            hooks_that_changed_a_result=self.result_hooks,
            sessions=tuple(self.sessions),
            session=self.session,
            directory=self.directory,
            unreadable=tuple(self.unreadable),
            misshapen=tuple(self.misshapen),
        )


def keys_of(printed: Any) -> frozenset[str]:
    """Every key, at any depth, of the JSON that a hook printed.

    Keys are compared as they are read, so an escape hides none. Of what is no JSON, or nested too
    deeply to be read, every quoted word counts: rather one too many than one too few.
    """
    if not isinstance(printed, str):
        return frozenset()
    keys: set[str] = set()

    def gather(members: list[tuple[str, Any]]) -> None:
        keys.update(key for key, _ in members)

    try:
        json.loads(printed, object_pairs_hook=gather, parse_int=float)
    except (ValueError, RecursionError):
        unescaped = ESCAPE.sub(lambda found: chr(int(found[1], 16)), printed)
        keys.update(re.findall(r'"(\w+)"', unescaped))
    return frozenset(keys)


def _once(members: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys stand once: one that two readers could read in two ways is none."""
    value = dict(members)
    if len(value) != len(members):
        raise ValueError("a key stands twice")
    return value


def _identified(block: Mapping[str, Any]) -> bool:
    """Whether a call has an id and a name; any other block has none to have."""
    names = (block.get("id"), block.get("name"))
    return block.get("type") != "tool_use" or all(isinstance(name, str) for name in names)


def _blocks(content: Any) -> Iterator[Mapping[str, Any]]:
    for block in blocks_of(content):
        yield block if isinstance(block, dict) else {"type": None, "value": block}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
