"""A rehearsal script: strict YAML in, frozen structures out, and which turn comes next.

Pure: no network, no clock, no file. The text of the script comes in as a string and every
fault of it goes out as one ``Refusal`` (exit 2) with one line for each fault, each with file,
line and column. The form is in ``script.schema.json``; ``examples/rehearsal.yaml`` is one.

YAML is read more narrowly than PyYAML reads it. A plain ``no``, ``012``, ``1:30`` or a date is
refused in favour of a quoted string, because a tool's input is JSON and the harness would
otherwise receive ``false``, ``10``, ``90`` or nothing it can encode.
"""

from __future__ import annotations

import fnmatch
import hashlib
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec
import yaml

from recorder.refusal import ExitCode, Refusal

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"

DEFAULT = "default"
CREDENTIAL_PREFIX = "rehearsal-"
WORKSPACE_PLACEHOLDER = "{workspace}"

ErrorName = Literal["400", "401", "403", "404", "413", "429", "500", "529", "credit", "too-long"]
ERROR_NAMES: tuple[ErrorName, ...] = (
    "400", "401", "403", "404", "413", "429", "500", "529", "credit", "too-long",
)  # fmt: skip
STOP_REASONS = ("end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal")

# A script is written by hand: these bounds only stop an alias bomb and a mistyped duration.
MAXIMUM_DEPTH = 64
MAXIMUM_NODES = 200_000
MAXIMUM_SECONDS = 3600.0
MAXIMUM_TIMES = 1000
MAXIMUM_DIGITS = 300


class Text(msgspec.Struct, frozen=True):
    """A text block of an answer."""

    text: str


class Thinking(msgspec.Struct, frozen=True):
    """A thinking block; the provider adds a signature that says it is a rehearsal's."""

    thinking: str


class ToolUse(msgspec.Struct, frozen=True):
    """A tool_use block. ``input`` is the JSON object the tool is called with."""

    name: str
    input: Mapping[str, Json]


Block: TypeAlias = Text | Thinking | ToolUse


class ErrorStatus(msgspec.Struct, frozen=True):
    """An HTTP error with the provider's own error body. ``retry_after`` is in seconds."""

    name: ErrorName
    retry_after: float | None = None


class Cut(msgspec.Struct, frozen=True):
    """The connection closes: before one byte of an answer, or in the middle of its stream."""

    where: Literal["before", "middle"]


class Stall(msgspec.Struct, frozen=True):
    """Half of the stream, then silence for that many seconds, then the connection closes."""

    seconds: float


class ErrorEvent(msgspec.Struct, frozen=True):
    """Half of the stream, then an ``error`` event inside it."""

    type: Literal["overloaded_error", "api_error"]


Failure: TypeAlias = ErrorStatus | Cut | Stall | ErrorEvent


class RepeatedFailure(msgspec.Struct, frozen=True):
    """A failure of ``times`` consecutive attempts; ``None`` is every attempt from there on."""

    failure: Failure
    times: int | None = 1


class TurnUsage(msgspec.Struct, frozen=True):
    """Token counts that a script sets; ``None`` leaves the estimate from the request."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    cache_creation_input_tokens: int | None = None
    cache_read_input_tokens: int | None = None


class Turn(msgspec.Struct, frozen=True):
    """One answer of the provider, with what goes wrong before it is given.

    ``failures`` are consumed one an attempt; the attempt after the last one gets ``content``.
    ``delay`` is in seconds, before the first byte. ``repeat`` is allowed on the last turn only
    and answers every later request with the same content.
    """

    content: tuple[Block, ...]
    failures: tuple[RepeatedFailure, ...] = ()
    stop_reason: str | None = None
    usage: TurnUsage = TurnUsage()
    delay: float = 0.0
    repeat: bool = False


class Variant(msgspec.Struct, frozen=True):
    """Turns for the sessions whose name matches a shell pattern."""

    match: str
    turns: tuple[Turn, ...]


class Subagent(msgspec.Struct, frozen=True):
    """Turns for a conversation whose first user message contains a text."""

    match: str
    turns: tuple[Turn, ...]


class ProbeScript(msgspec.Struct, frozen=True):
    """What the provider answers to the sessions of one probe."""

    turns: tuple[Turn, ...]
    sessions: tuple[Variant, ...] = ()
    subagents: tuple[Subagent, ...] = ()


class Script(msgspec.Struct, frozen=True):
    """A whole script. ``default`` answers for every probe that ``probes`` does not name."""

    probes: Mapping[str, ProbeScript]
    default: ProbeScript | None = None

    def of(self, probe: str) -> ProbeScript | None:
        """The script of a probe, or ``None`` when neither it nor a default is there."""
        return self.probes.get(probe, self.default)


class Caller(msgspec.Struct, frozen=True):
    """Who is asking, as the credential says it."""

    probe: str
    session: str


class Conversation(msgspec.Struct, frozen=True):
    """The turns that answer one conversation. ``name`` tells it from others of its session."""

    name: str
    turns: tuple[Turn, ...]


def credential(probe: str, session: str) -> str:
    """The credential that the driver gives the sidecar for a rehearsed session."""
    return f"{CREDENTIAL_PREFIX}{probe}~{session}"


def read_credential(value: str) -> Caller | None:
    """The inverse of ``credential``; ``None`` for whatever is no rehearsal's credential."""
    if not value.startswith(CREDENTIAL_PREFIX):
        return None
    probe, tilde, session = value[len(CREDENTIAL_PREFIX) :].partition("~")
    return Caller(probe, session) if probe and tilde and session else None


def choose_conversation(script: ProbeScript, session: str, first_text: str) -> Conversation:
    """The turns for one conversation of a session.

    A subagent's conversation is known by its first user message, since the request names no
    parent. Otherwise the first variant whose pattern matches the session's name, else the
    probe's own turns.
    """
    for position, subagent in enumerate(script.subagents):
        if subagent.match in first_text:
            digest = hashlib.sha256(first_text.encode("utf-8", "surrogatepass")).hexdigest()
            return Conversation(f"subagent-{position}-{digest[:8]}", subagent.turns)
    for variant in script.sessions:
        if fnmatch.fnmatchcase(session, variant.match):
            return Conversation("main", variant.turns)
    return Conversation("main", script.turns)


def choose_turn(conversation: Conversation, position: int) -> Turn:
    """The turn after ``position`` answers. Past the end, one that says so and ends the session."""
    if position < len(conversation.turns):
        return conversation.turns[position]
    if conversation.turns and conversation.turns[-1].repeat:
        return conversation.turns[-1]
    return Turn(content=(Text("The rehearsal script has no further turn."),))


def failure_at(turn: Turn, attempt: int) -> Failure | None:
    """What goes wrong at the attempt (from 0) of this turn, or ``None``."""
    for repeated in turn.failures:
        if repeated.times is None or attempt < repeated.times:
            return repeated.failure
        attempt -= repeated.times
    return None


def place_workspace(block: Block, workspace: str) -> Block:
    """The block with ``{workspace}`` replaced in its texts and in its input's values."""
    if isinstance(block, Text):
        return Text(block.text.replace(WORKSPACE_PLACEHOLDER, workspace))
    if isinstance(block, Thinking):
        return Thinking(block.thinking.replace(WORKSPACE_PLACEHOLDER, workspace))
    placed = _place(block.input, workspace)
    return ToolUse(block.name, cast("Mapping[str, Json]", placed))


def _place(value: Json, workspace: str) -> Json:
    if isinstance(value, str):
        return value.replace(WORKSPACE_PLACEHOLDER, workspace)
    if isinstance(value, Mapping):
        return {key: _place(member, workspace) for key, member in value.items()}
    if isinstance(value, Sequence):
        return [_place(member, workspace) for member in value]
    return value


def load_script(text: str, name: str) -> Script:
    """Read a script. ``name`` is what the faults call the file.

    Raises ``Refusal`` (USAGE) with one line for each fault.
    """
    reader = _Reader(name)
    script = reader.script(text)
    if reader.faults or script is None:
        raise Refusal(ExitCode.USAGE, *reader.faults)
    return script


_T = TypeVar("_T")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)\Z")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?\Z")
_WORDS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_CORE_TAGS: Mapping[type, str] = {
    str: "tag:yaml.org,2002:str",
    int: "tag:yaml.org,2002:int",
    float: "tag:yaml.org,2002:float",
    bool: "tag:yaml.org,2002:bool",
    type(None): "tag:yaml.org,2002:null",
}


class _FaultError(Exception):
    """One fault at one node. Caught by the nearest sequence or mapping, which reads on."""

    def __init__(self, node: yaml.Node, reason: str) -> None:
        super().__init__(reason)
        self.node = node
        self.reason = reason


class _Reader:
    """Walks the node graph, collecting faults, so that one run names them all."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.faults: list[str] = []

    def fault(self, mark: yaml.Mark | None, reason: str) -> None:
        where = f"{mark.line + 1}:{mark.column + 1}" if mark is not None else "1:1"
        line = f"{self.name}:{where}: {reason}"
        if line not in self.faults:
            self.faults.append(line)

    def script(self, text: str) -> Script | None:
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.MarkedYAMLError as error:
            problem = " ".join(str(error.problem or error.context or "not YAML").split())
            self.fault(error.problem_mark or error.context_mark, f"not YAML: {problem}")
            return None
        except yaml.reader.ReaderError as error:
            before = str(text)[: error.position]
            line, column = before.count("\n") + 1, error.position - (before.rfind("\n") + 1) + 1
            self.faults.append(
                f"{self.name}:{line}:{column}: not YAML: a character that YAML does not allow"
            )
            return None
        except RecursionError:
            self.faults.append(f"{self.name}:1:1: not read: nested too deeply")
            return None
        if root is None:
            self.faults.append(f"{self.name}:1:1: empty: it must map probes to turns")
            return None
        try:
            _bound(root)
            members = self.mapping(root, "a script")
        except _FaultError as fault:
            self.fault(fault.node.start_mark, fault.reason)
            return None
        if not members:
            self.fault(root.start_mark, "empty: it must map probes to turns")
        probes: dict[str, ProbeScript] = {}
        default: ProbeScript | None = None
        for key, node in members.items():
            read = self.attempt(self.probe_script, node)
            if read is None:
                continue
            if key == DEFAULT:
                default = read
            elif not key or "~" in key or any(letter.isspace() for letter in key):
                self.fault(node.start_mark, f"{key!r} is no probe id: it holds ~ or a space")
            else:
                probes[key] = read
        return Script(probes, default)

    def attempt(self, read: Callable[[yaml.Node], _T], node: yaml.Node) -> _T | None:
        try:
            return read(node)
        except _FaultError as fault:
            self.fault(fault.node.start_mark, fault.reason)
            return None

    def items(self, node: yaml.Node, read: Callable[[yaml.Node], _T], what: str) -> tuple[_T, ...]:
        if not isinstance(node, yaml.SequenceNode):
            raise _FaultError(node, f"{what} must be a list")
        values = [self.attempt(read, item) for item in node.value]
        return tuple(value for value in values if value is not None)

    def mapping(self, node: yaml.Node, what: str) -> dict[str, yaml.Node]:
        if not isinstance(node, yaml.MappingNode):
            raise _FaultError(node, f"{what} must be a mapping")
        members: dict[str, yaml.Node] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise _FaultError(key, f"a key of {what} must be a word")
            if key.tag == "tag:yaml.org,2002:merge":
                raise _FaultError(
                    key, "merge keys (<<) are not read: use an alias for a whole list"
                )
            if key.value in members:
                raise _FaultError(key, f"the key {key.value!r} stands twice")
            members[key.value] = value
        return members

    def closed(
        self, node: yaml.Node, what: str, keys: Sequence[str], required: Sequence[str] = ()
    ) -> dict[str, yaml.Node]:
        members = self.mapping(node, what)
        for key in members:
            if key not in keys:
                at = next(k for k, _ in node.value if k.value == key)
                raise _FaultError(at, f"{what} has no key {key!r}: it has {', '.join(keys)}")
        for key in required:
            if key not in members:
                raise _FaultError(node, f"{what} needs the key {key!r}")
        return members

    def probe_script(self, node: yaml.Node) -> ProbeScript:
        if isinstance(node, yaml.SequenceNode):
            return ProbeScript(self.turns(node))
        members = self.closed(
            node, "a probe's script", ("turns", "sessions", "subagents"), ("turns",)
        )
        sessions: tuple[Variant, ...] = ()
        subagents: tuple[Subagent, ...] = ()
        if "sessions" in members:
            sessions = self.items(members["sessions"], self.variant, "sessions")
        if "subagents" in members:
            subagents = self.items(members["subagents"], self.subagent, "subagents")
        return ProbeScript(self.turns(members["turns"]), sessions, subagents)

    def variant(self, node: yaml.Node) -> Variant:
        members = self.closed(node, "a variant", ("match", "turns"), ("match", "turns"))
        return Variant(self.filled(members["match"], "match"), self.turns(members["turns"]))

    def subagent(self, node: yaml.Node) -> Subagent:
        members = self.closed(node, "a subagent", ("match", "turns"), ("match", "turns"))
        return Subagent(self.filled(members["match"], "match"), self.turns(members["turns"]))

    def turns(self, node: yaml.Node) -> tuple[Turn, ...]:
        turns = self.items(node, self.turn, "turns")
        if isinstance(node, yaml.SequenceNode):
            if not node.value:
                raise _FaultError(node, "turns must hold one turn at least")
            # A faulty turn is left out of ``turns``, so the check needs them all to be read.
            if len(turns) == len(node.value):
                for item, turn in zip(node.value[:-1], turns[:-1], strict=True):
                    if turn.repeat:
                        self.fault(item.start_mark, "repeat is for the last turn only")
        return turns

    def turn(self, node: yaml.Node) -> Turn:
        members = self.closed(
            node,
            "a turn",
            ("content", "failures", "stop_reason", "usage", "delay", "repeat"),
            ("content",),
        )
        failures: tuple[RepeatedFailure, ...] = ()
        stop_reason: str | None = None
        usage, delay, repeat = TurnUsage(), 0.0, False
        if "failures" in members:
            failures = self.items(members["failures"], self.failure, "failures")
        if "stop_reason" in members:
            stop_reason = self.choice(members["stop_reason"], "stop_reason", STOP_REASONS)
        if "usage" in members:
            usage = self.usage(members["usage"])
        if "delay" in members:
            delay = self.seconds(members["delay"], "delay")
        if "repeat" in members:
            repeat = self.boolean(members["repeat"], "repeat")
        content = self.items(members["content"], self.block, "content")
        return Turn(content, failures, stop_reason, usage, delay, repeat)

    def block(self, node: yaml.Node) -> Block:
        keys = ("text", "thinking", "tool_use")
        members = self.closed(node, "a block", keys)
        if len(members) != 1:
            raise _FaultError(node, f"a block has one key of {', '.join(keys)}")
        ((key, value),) = members.items()
        if key == "text":
            return Text(self.filled(value, key))
        if key == "thinking":
            return Thinking(self.filled(value, key))
        call = self.closed(value, "tool_use", ("name", "input"), ("name",))
        given: Json = {}
        if "input" in call:
            if not isinstance(call["input"], yaml.MappingNode):
                raise _FaultError(call["input"], "input must be a mapping")
            given = self.json(call["input"])
        return ToolUse(self.filled(call["name"], "name"), cast("Mapping[str, Json]", given))

    def failure(self, node: yaml.Node) -> RepeatedFailure:
        kinds = ("status", "cut", "stall", "error_event")
        members = self.closed(node, "a failure", (*kinds, "retry_after", "times"))
        named = [kind for kind in kinds if kind in members]
        if len(named) != 1:
            raise _FaultError(node, f"a failure has one key of {', '.join(kinds)}")
        kind, value = named[0], members[named[0]]
        if "retry_after" in members and kind != "status":
            raise _FaultError(members["retry_after"], "retry_after belongs to a status")
        times: int | None = 1
        if "times" in members:
            node_of_times = members["times"]
            if isinstance(node_of_times, yaml.ScalarNode) and node_of_times.value == "always":
                times = None
            else:
                times = self.count(node_of_times, "times", 1, MAXIMUM_TIMES)
        failure: Failure
        if kind == "status":
            retry_after: float | None = None
            if "retry_after" in members:
                retry_after = self.seconds(members["retry_after"], "retry_after")
            failure = ErrorStatus(self.choice(value, "status", ERROR_NAMES), retry_after)
        elif kind == "cut":
            failure = Cut(self.choice(value, "cut", ("before", "middle")))
        elif kind == "stall":
            failure = Stall(self.seconds(value, "stall"))
        else:
            failure = ErrorEvent(
                self.choice(value, "error_event", ("overloaded_error", "api_error"))
            )
        return RepeatedFailure(failure, times)

    def usage(self, node: yaml.Node) -> TurnUsage:
        members = self.closed(node, "usage", TurnUsage.__struct_fields__)
        return TurnUsage(
            **{key: self.count(value, key, 0, 10_000_000) for key, value in members.items()}
        )

    def filled(self, node: yaml.Node, what: str) -> str:
        value = self.json(node)
        if not isinstance(value, str) or not value:
            raise _FaultError(node, f"{what} must be a text that is not empty")
        return value

    def choice(self, node: yaml.Node, what: str, among: Sequence[_T]) -> _T:
        written = node.value if isinstance(node, yaml.ScalarNode) else None
        for value in among:
            if value == written:
                return value
        raise _FaultError(node, f"{what} must be one of {', '.join(str(value) for value in among)}")

    def boolean(self, node: yaml.Node, what: str) -> bool:
        value = self.json(node)
        if not isinstance(value, bool):
            raise _FaultError(node, f"{what} must be true or false")
        return value

    def count(self, node: yaml.Node, what: str, least: int, most: int) -> int:
        value = self.json(node)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise _FaultError(node, f"{what} must be a whole number from {least} to {most}")
        return value

    def seconds(self, node: yaml.Node, what: str) -> float:
        value = self.json(node)
        if (
            not isinstance(value, int | float)
            or isinstance(value, bool)
            or not 0 <= value <= MAXIMUM_SECONDS
        ):
            raise _FaultError(node, f"{what} must be seconds from 0 to {MAXIMUM_SECONDS:.0f}")
        return float(value)

    def json(self, node: yaml.Node) -> Json:
        if isinstance(node, yaml.SequenceNode):
            return [self.json(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            return {key: self.json(value) for key, value in self.mapping(node, "input").items()}
        if not isinstance(node, yaml.ScalarNode):
            raise _FaultError(node, "neither a scalar, nor a list, nor a mapping")
        return _scalar(node)


def _scalar(node: yaml.ScalarNode) -> Json:
    value = str(node.value)
    if node.style is not None:
        if node.tag != "tag:yaml.org,2002:str":
            raise _FaultError(node, f"the tag {node.tag} is not read")
        return value
    core = _core_value(node, value)
    # YAML 1.1, which PyYAML reads, and the JSON-like core of YAML 1.2 must agree on it.
    if node.tag != _CORE_TAGS[type(core)]:
        raise _FaultError(node, f"plain {value!r} reads in more than one way: write it in quotes")
    return core


def _core_value(node: yaml.ScalarNode, value: str) -> Json:
    if value in _WORDS:
        return _WORDS[value]
    if len(value) > MAXIMUM_DIGITS and _NUMBER.match(value):
        raise _FaultError(node, f"a number of more than {MAXIMUM_DIGITS} digits is not read")
    if _INTEGER.match(value):
        return int(value)
    if _NUMBER.match(value):
        number = float(value)
        if math.isinf(number):
            raise _FaultError(node, f"{value} is no number that JSON can hold")
        return number
    return value


def _bound(root: yaml.Node) -> None:
    """Refuse a graph that is deeper or larger than a script: aliases can make it endless."""
    stack: list[tuple[yaml.Node, int]] = [(root, 0)]
    seen = 0
    while stack:
        node, depth = stack.pop()
        seen += 1
        if depth > MAXIMUM_DEPTH or seen > MAXIMUM_NODES:
            raise _FaultError(node, "nested too deeply, or aliases that multiply")
        stack.extend((child, depth + 1) for child in _children(node))


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        yield from node.value
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield key
            yield value
