"""The unary steps: what each takes, and what it makes of a list of items.

The table is the validator: a step that is not in it, or an argument that its row does not list,
is a fault at load. A step never raises on any value, but for ``json``: text that is not JSON is a
fault of the source's supply.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cmp_to_key
from typing import Any, Literal

from recorder.disciplines.patterns import Pattern
from recorder.disciplines.values import (
    ABSENT,
    NOTHING,
    WHITE_SPACE,
    Item,
    Items,
    Snapshot,
    before,
    identity,
    is_number,
    is_object,
    member,
    member_names,
    parse_json,
    text_of,
)

ArgumentKind = Literal["text", "texts", "pattern", "capture", "flag", "conditions"]
Run = Callable[[Items], Items]


class SupplyFaultError(Exception):
    """A source is there and is not what a step can read."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One test of ``filter``: a member of the item's value, an operator, what it is held to."""

    field: str
    operator: str
    operand: Any


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a step. ``ignore_case`` of a pattern is the flag ``i`` beside it."""

    name: str
    kind: ArgumentKind
    required: bool = True


Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class StepKind:
    """A row of the table. ``build`` gets arguments that have been held to ``arguments``."""

    op: str
    arguments: tuple[Argument, ...]
    build: Callable[[Arguments], Run]


CONDITION_OPERATORS = ("eq", "ne", "size", "notIn", "lte", "gte")


def _json(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        found = []
        for key, value in items:
            if not isinstance(value, str):
                raise SupplyFaultError("is not JSON text")
            try:
                found.append(Item(key, parse_json(value)))
            except ValueError as error:
                raise SupplyFaultError(f"is not JSON: {error}") from error
        return tuple(found)

    return run


def _spread(values: list[Any]) -> list[Item]:
    return [Item(str(number), value) for number, value in enumerate(values)]


def _select(arguments: Arguments) -> Run:
    names = str(arguments["path"]).split(".")

    def run(items: Items) -> Items:
        found: list[Item] = []
        for key, value in items:
            for name in names:
                value = member(value, name)
            if value is ABSENT:
                continue
            if isinstance(value, list):
                found += _spread(value)
            else:
                found.append(Item(key, value))
        return tuple(found)

    return run


def _items(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        return tuple(
            element for _, value in items if isinstance(value, list) for element in _spread(value)
        )

    return run


def _key_by(arguments: Arguments) -> Run:
    field: str = arguments["field"]

    def run(items: Items) -> Items:
        found = []
        for _, value in items:
            named = member(value, field)
            if named is ABSENT or named is None or isinstance(named, (dict, list)):
                continue
            found.append(Item(text_of(named), value))
        return tuple(found)

    return run


def _key_by_pattern(arguments: Arguments) -> Run:
    pattern: Pattern = arguments["re"]

    def run(items: Items) -> Items:
        found = []
        for _, value in items:
            captured = pattern.first_group(text_of(value))
            if captured is not None:
                found.append(Item(captured, value))
        return tuple(found)

    return run


def _field(arguments: Arguments) -> Run:
    name: str = arguments["name"]

    def run(items: Items) -> Items:
        return tuple(Item(key, member(value, name)) for key, value in items if is_object(value))

    return run


def _holds(condition: Condition) -> Callable[[Any], bool]:
    operand = condition.operand
    match condition.operator:
        case "eq":
            same = identity(operand)
            return lambda value: value is not ABSENT and identity(value) == same
        case "ne":
            other = identity(operand)
            return lambda value: value is ABSENT or identity(value) != other
        case "notIn":
            listed = frozenset(map(identity, operand))
            return lambda value: value is ABSENT or identity(value) not in listed
        case "size":
            return lambda value: isinstance(value, list) and len(value) == operand
        case "lte":
            return lambda value: is_number(value) and value <= operand
        case _:
            return lambda value: is_number(value) and value >= operand


def _filter(arguments: Arguments) -> Run:
    tests = [(condition.field, _holds(condition)) for condition in arguments["when"]]

    def run(items: Items) -> Items:
        return tuple(
            item for item in items if all(holds(member(item[1], name)) for name, holds in tests)
        )

    return run


def _flatten_keys(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        found: list[Item] = []
        for _, value in items:
            if is_object(value):
                _leaves(value, "", found)
        return tuple(found)

    return run


def _leaves(value: dict[str, Any], prefix: str, found: list[Item]) -> None:
    for name in member_names(value):
        path = prefix + name
        below = value[name]
        if isinstance(below, dict):
            _leaves(below, path + ".", found)
        else:
            found.append(Item(path, path))


def _sort(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        if all(is_number(value) for _, value in items):
            return tuple(sorted(items, key=lambda item: item.value))
        texts = [(text_of(item.value), item) for item in items]

        def compare(left: tuple[str, Item], right: tuple[str, Item]) -> int:
            return -1 if before(left[0], right[0]) else 1 if before(right[0], left[0]) else 0

        return tuple(item for _, item in sorted(texts, key=cmp_to_key(compare)))

    return run


def _lines(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        found = []
        for _, value in items:
            if not isinstance(value, str):
                continue
            for number, line in enumerate(value.split("\n"), start=1):
                if trimmed := line.strip(WHITE_SPACE):
                    found.append(Item(str(number), trimmed))
        return tuple(found)

    return run


def _matches(arguments: Arguments) -> Run:
    pattern: Pattern = arguments["re"]

    search, free = pattern.compiled.search, pattern.free

    def run(items: Items) -> Items:
        # Nearly every item is a short line of ASCII, which the engine can be given as it is.
        return tuple(
            [
                item
                for item in items
                if (
                    search(item[1])
                    if type(item[1]) is str and len(item[1]) <= free and item[1].isascii()
                    else pattern.matches(text_of(item[1]))
                )
            ]
        )

    return run


def _turns(value: Any, name: str) -> list[dict[str, Any]]:
    """The user turns or the calls of a snapshot that carry an ordinal; of anything else none."""
    listed = member(value, name)
    if not isinstance(listed, list):
        return []
    return [turn for turn in listed if is_number(member(turn, "index"))]


def _tool_uses(arguments: Arguments) -> Run:
    listed: tuple[str, ...] | None = arguments.get("names")
    names = None if listed is None else frozenset(listed)
    kind: str | None = arguments.get("subagentType")

    def admits(call: dict[str, Any]) -> bool:
        if names is not None and call.get("name") not in names:
            return False
        return kind is None or member(call.get("args"), "subagent_type") == kind

    def run(items: Items) -> Items:
        found: list[Item] = []
        for _, value in items:
            if isinstance(value, Snapshot) and value.index is not None:
                indexed: Items = value.index.uses((names, kind), admits, value)
                if len(items) == 1:
                    return indexed
                found += indexed
            else:
                found += [
                    Item(text_of(call["index"]), call)
                    for call in _turns(value, "toolCalls")
                    if admits(call)
                ]
        return tuple(found)

    return run


def _user_texts(arguments: Arguments) -> Run:
    pattern: Pattern = arguments["re"]

    def said(value: Any) -> list[dict[str, Any]]:
        return [
            turn
            for turn in _turns(value, "userMessages")
            if isinstance(text := member(turn, "text"), str) and pattern.matches(text)
        ]

    def run(items: Items) -> Items:
        found = []
        for _, value in items:
            if isinstance(value, Snapshot) and value.index is not None:
                turns = value.index.said(pattern, said, value)
            else:
                turns = said(value)
            if not turns:
                continue
            at = member(value, "observedAtMs")
            for turn in turns:
                timed = turn if at is ABSENT else {**turn, "observedAtMs": at}
                found.append(Item(text_of(turn["index"]), timed))
        return tuple(found)

    return run


def _agent_type(arguments: Arguments) -> Run:
    kind: str = arguments["is"]

    def run(items: Items) -> Items:
        found: list[Item] = []
        for key, value in items:
            records = _spread(value) if isinstance(value, list) else [Item(key, value)]
            found += [record for record in records if member(record.value, "agentType") == kind]
        return tuple(found)

    return run


def _first(_: Arguments) -> Run:
    return lambda items: items[:1]


def _age(_: Arguments) -> Run:
    def run(items: Items) -> Items:
        found = []
        for key, value in items:
            at, then = member(value, "observedAtMs"), member(value, "timestampMs")
            if is_number(at) and is_number(then) and then <= at:
                found.append(Item(key, {**value, "ageMs": at - then}))
        return tuple(found)

    return run


_IGNORE_CASE = Argument("i", "flag", required=False)

STEPS: Mapping[str, StepKind] = {
    kind.op: kind
    for kind in (
        StepKind("json", (), _json),
        StepKind("select", (Argument("path", "text"),), _select),
        StepKind("items", (), _items),
        StepKind("keyBy", (Argument("field", "text"),), _key_by),
        StepKind("keyByPattern", (Argument("re", "capture"), _IGNORE_CASE), _key_by_pattern),
        StepKind("field", (Argument("name", "text"),), _field),
        StepKind("filter", (Argument("when", "conditions"),), _filter),
        StepKind("flattenKeys", (), _flatten_keys),
        StepKind("sort", (), _sort),
        StepKind("lines", (), _lines),
        StepKind("matches", (Argument("re", "pattern"), _IGNORE_CASE), _matches),
        StepKind(
            "toolUses",
            (
                Argument("names", "texts", required=False),
                Argument("subagentType", "text", required=False),
            ),
            _tool_uses,
        ),
        StepKind("userTexts", (Argument("re", "pattern"), _IGNORE_CASE), _user_texts),
        StepKind("agentType", (Argument("is", "text"),), _agent_type),
        StepKind("first", (), _first),
        StepKind("ageMs", (), _age),
    )
}


class HistoryIndex:
    """A whole session, asked for one observation after another: every user turn comes before
    its first call, and of its calls each observation sees the first so many."""

    def __init__(self, calls: list[dict[str, Any]]) -> None:
        self._calls = calls
        self._positions: dict[object, list[int]] = {}
        self._last: dict[object, Items] = {}
        self._said: dict[Pattern, list[dict[str, Any]]] = {}

    def said(
        self,
        pattern: Pattern,
        find: Callable[[Any], list[dict[str, Any]]],
        snapshot: Snapshot,
    ) -> list[dict[str, Any]]:
        """The user turns that match, which are the same for every observation."""
        found = self._said.get(pattern)
        if found is None:
            found = self._said[pattern] = find(snapshot)
        return found

    def uses(
        self, key: object, admits: Callable[[dict[str, Any]], bool], snapshot: Snapshot
    ) -> Items:
        """The admitted calls of a snapshot; the same tuple while they stay the same."""
        positions = self._positions.get(key)
        if positions is None:
            positions = [n for n, call in enumerate(self._calls) if admits(call)]
            self._positions[key] = positions
        if not positions:
            return NOTHING
        visible: list[dict[str, Any]] = snapshot["toolCalls"]
        count = bisect_left(positions, len(visible))
        last = self._last.get(key, NOTHING)
        if len(last) == count and all(
            item.value is visible[position] for item, position in zip(last, positions, strict=False)
        ):
            return last
        found = tuple(
            Item(str(visible[position]["index"]), visible[position])
            for position in positions[:count]
        )
        self._last[key] = found
        return found
