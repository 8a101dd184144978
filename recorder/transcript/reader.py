"""The one strict reader of transcripts and events. It lists every fault, each with its line.

A key outside the four closed sets is a fault: that is the rule that a transcript holds no
model prose.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from recorder.transcript.blocks import Block, read_markdown
from recorder.transcript.contract import Artifact, Call, Event, Identity
from recorder.transcript.nodes import Items, Members, Node, NodeError, Scalar, read_nodes

IDENTITY_SECTION = "Run identity"
EVENTS_SECTION = "Events"

IDENTITY_KEYS = Identity.__struct_fields__
EVENT_KEYS = Event.__struct_fields__
CALL_KEYS = Call.__struct_fields__
ARTIFACT_KEYS = Artifact.__struct_fields__
NUMBERS = frozenset({"seed", "cost_cents"})

_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a transcript is refused: ``line`` of the file from 1, the block and place, the rule."""

    line: int
    where: str
    rule: str

    def text(self, name: str) -> str:
        return f"{name}, line {self.line}: {self.where}: {self.rule}"


@dataclass(frozen=True, slots=True)
class Member:
    """An identity member as it is written."""

    line: int
    value: str | int


@dataclass(frozen=True, slots=True)
class LocatedEvent:
    line: int
    event: Event


@dataclass(frozen=True, slots=True)
class Reading:
    """A transcript as far as it could be read. ``identity`` is None where it is incomplete."""

    identity: Identity | None
    members: dict[str, Member]
    events: tuple[LocatedEvent, ...]
    faults: tuple[Fault, ...]


def read_transcript(text: str) -> Reading:
    """Read the two fenced blocks under their headings; prose around them is not looked at."""
    reader = _Reader()
    markdown = read_markdown(text)
    blocks = {}
    for section in (IDENTITY_SECTION, EVENTS_SECTION):
        lines = [line for heading, line in markdown.headings if heading == section]
        found = [
            b for b in markdown.blocks if b.heading == section and b.language in ("yaml", "yml")
        ]
        blocks[section] = reader.one_block(section, lines, found)
    members = reader.identity(blocks[IDENTITY_SECTION])
    events = reader.events(blocks[EVENTS_SECTION])
    identity = None
    if all(key in members for key in IDENTITY_KEYS):
        values = {key: members[key].value for key in IDENTITY_KEYS}
        identity = msgspec.convert(values, Identity)
    return Reading(identity, members, events, tuple(reader.faults))


def read_events(text: str) -> Reading:
    """Read the content of an Events block alone, as ``event.yaml`` files hold it."""
    reader = _Reader()
    events = reader.events(Block(EVENTS_SECTION, "yaml", 1, text, closed=True))
    return Reading(None, {}, events, tuple(reader.faults))


@dataclass(slots=True)
class _Reader:
    faults: list[Fault] = field(default_factory=list)

    def fault(self, line: int, where: str, rule: str) -> None:
        self.faults.append(Fault(line, where, rule))

    def one_block(self, section: str, headings: list[int], found: list[Block]) -> Block | None:
        where = f"{section} block"
        if not headings:
            self.fault(1, where, f"there is no heading ## {section}")
        elif len(headings) > 1:
            self.fault(headings[1], where, f"a second heading ## {section}")
        elif not found:
            self.fault(headings[0], where, "no fenced yaml block stands under this heading")
        elif len(found) > 1:
            self.fault(found[1].line - 1, where, "a second yaml block under one heading")
        elif not found[0].closed:
            self.fault(found[0].line - 1, where, "the fence is not closed")
        else:
            return found[0]
        return None

    def identity(self, block: Block | None) -> dict[str, Member]:
        root = self.root(block)
        if block is None or root is None:
            return {}
        where = f"{IDENTITY_SECTION} block"
        line = block.line - 1 + root.line
        if not isinstance(root, Members):
            self.fault(line, where, "is not a list of members, one key a line")
            return {}
        members: dict[str, Member] = {}
        offset = block.line - 1
        pairs = self.members(root, IDENTITY_KEYS, IDENTITY_KEYS, where, offset)
        for key, node in pairs.items():
            value = self.number if key in NUMBERS else self.name
            read = value(node, f"{where}, key {key}", offset)
            if read is not None:
                members[key] = Member(offset + node.line, read)
        return members

    def events(self, block: Block | None) -> tuple[LocatedEvent, ...]:
        root = self.root(block)
        if block is None or root is None:
            return ()
        where, offset = f"{EVENTS_SECTION} block", block.line - 1
        events = []
        for number, node in enumerate(self.items(root, where, offset), 1):
            event = self.event(node, f"{where}, event {number}", offset)
            if event is not None:
                events.append(LocatedEvent(offset + node.line, event))
        return tuple(events)

    def event(self, node: Node, where: str, offset: int) -> Event | None:
        pairs = self.members(node, EVENT_KEYS, ("probe", "session"), where, offset)
        probe = self.member(pairs, "probe", self.name, where, offset)
        session = self.member(pairs, "session", self.name, where, offset)
        where = "".join(
            [where, f", probe {shown(probe)}" if probe else "", _session(session)],
        )
        calls: tuple[Call, ...] | UnsetType = UNSET
        produced: tuple[Artifact, ...] | UnsetType = UNSET
        answer: str | UnsetType | None = UNSET
        if "calls" in pairs:
            calls = tuple(self.list_of(pairs["calls"], self.call, where, "calls", "call", offset))
        if "produced" in pairs:
            produced = tuple(
                self.list_of(
                    pairs["produced"], self.artifact, where, "produced", "artifact", offset
                )
            )
        if "answer" in pairs:
            node = pairs["answer"]
            null = isinstance(node, Scalar) and node.is_null
            answer = None if null else self.text(node, f"{where}, key answer", offset)
        if probe is None or session is None:
            return None
        return Event(probe=probe, session=session, calls=calls, produced=produced, answer=answer)

    def call(self, node: Node, where: str, offset: int) -> Call | None:
        pairs = self.members(node, CALL_KEYS, CALL_KEYS, where, offset)
        tool = self.member(pairs, "tool", self.name, where, offset)
        argument = self.member(pairs, "argument", self.text, where, offset)
        result = self.member(pairs, "result", self.text, where, offset)
        if tool is None or argument is None or result is None:
            return None
        return Call(tool=tool, argument=argument, result=result)

    def artifact(self, node: Node, where: str, offset: int) -> Artifact | None:
        pairs = self.members(node, ARTIFACT_KEYS, ("path", "result", "cites"), where, offset)
        path = self.member(pairs, "path", self.name, where, offset)
        result = self.member(pairs, "result", self.text, where, offset)
        cites = self.member(pairs, "cites", self.names, where, offset)
        findings = self.member(pairs, "findings", self.names, where, offset)
        if path is None or result is None or cites is None:
            return None
        return Artifact(
            path=path,
            result=result,
            cites=cites,
            findings=UNSET if findings is None else findings,
        )

    def root(self, block: Block | None) -> Node | None:
        if block is None:
            return None
        try:
            return read_nodes(block.text)
        except NodeError as error:
            self.fault(block.line - 1 + error.line, f"{block.heading} block", error.why)
            return None

    def members(
        self,
        node: Node,
        keys: tuple[str, ...],
        required: Iterable[str],
        where: str,
        offset: int,
    ) -> dict[str, Node]:
        """The members of a mapping whose keys are of a closed set."""
        if not isinstance(node, Members):
            self.fault(offset + node.line, where, f"is not a mapping of {', '.join(keys)}")
            return {}
        pairs: dict[str, Node] = {}
        for key, value in node.pairs:
            if key.text not in keys:
                rule = f"is not one of {', '.join(keys)}; a transcript holds no other key"
                self.fault(offset + key.line, f"{where}, key {shown(key.text)}", rule)
            elif key.text in pairs:
                self.fault(offset + key.line, f"{where}, key {key.text}", "is written twice")
            else:
                pairs[key.text] = value
        for key_name in required:
            if key_name not in pairs:
                self.fault(offset + node.line, f"{where}, key {key_name}", "is missing")
        return pairs

    def member(
        self,
        pairs: dict[str, Node],
        key: str,
        read: Callable[[Node, str, int], _Value | None],
        where: str,
        offset: int,
    ) -> _Value | None:
        return read(pairs[key], f"{where}, key {key}", offset) if key in pairs else None

    def list_of(
        self,
        node: Node,
        read: Callable[[Node, str, int], _Value | None],
        where: str,
        key: str,
        thing: str,
        offset: int,
    ) -> Iterator[_Value]:
        for number, item in enumerate(self.items(node, f"{where}, key {key}", offset), 1):
            value = read(item, f"{where}, {thing} {number}", offset)
            if value is not None:
                yield value

    def items(self, node: Node, where: str, offset: int) -> tuple[Node, ...]:
        if isinstance(node, Items):
            return node.nodes
        self.fault(
            offset + node.line, where, "is not a list; an empty list is [], nothing seen is no key"
        )
        return ()

    def text(self, node: Node, where: str, offset: int) -> str | None:
        if isinstance(node, Scalar) and not node.is_null:
            return node.text
        self.fault(offset + node.line, where, "is not a string")
        return None

    def name(self, node: Node, where: str, offset: int) -> str | None:
        value = self.text(node, where, offset)
        if value == "":
            self.fault(offset + node.line, where, "is empty")
            return None
        return value

    def names(self, node: Node, where: str, offset: int) -> tuple[str, ...] | None:
        if not isinstance(node, Items):
            self.fault(offset + node.line, where, "is not a list")
            return None
        values = [self.text(item, where, offset) for item in node.nodes]
        return tuple(value for value in values if value is not None)

    def number(self, node: Node, where: str, offset: int) -> int | None:
        value = node.whole_number if isinstance(node, Scalar) else None
        if value is None:
            unit = " of cents" if where.endswith("cost_cents") else ""
            self.fault(offset + node.line, where, f"is not a whole number{unit}")
        return value


def _session(session: str | None) -> str:
    return f", session {shown(session)}" if session else ""


def shown(text: str, limit: int = 120) -> str:
    """A value of the file as part of one line of a message."""
    cut = text if len(text) <= limit else text[:limit] + "…"
    return cut if cut.isprintable() else json.dumps(cut)
