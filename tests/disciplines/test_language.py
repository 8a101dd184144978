"""The language's own laws: steps, relations, supply, scope, witness, messages, JavaScript."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.disciplines import relations, steps
from recorder.disciplines.declaration import Declaration
from recorder.disciplines.judging import (
    Broken,
    Memo,
    NotApplicable,
    NotObserved,
    Passed,
    Unjudgeable,
    World,
    judge,
)
from recorder.disciplines.patterns import PatternError, compile_pattern
from recorder.disciplines.relations import (
    COMBINATOR_KINDS,
    RELATION_KINDS,
    Violator,
    Violators,
)
from recorder.disciplines.steps import STEPS, Condition, HistoryIndex
from recorder.disciplines.values import (
    ABSENT,
    UNPROVEN,
    Item,
    Items,
    Snapshot,
    identity,
    parse_json,
    text_of,
)
from tests.disciplines.conftest import load_one

TURN = {"index": 0, "text": "/go now", "timestampMs": 400}
CALLS: list[dict[str, Any]] = [
    {"index": 1, "name": "Bash", "args": {"command": "ls"}, "succeeded": True},
    {"index": 2, "name": "Task", "args": {"subagent_type": "w"}, "succeeded": False},
]
SESSION: dict[str, Any] = {"observedAtMs": 1000, "userMessages": [TURN], "toolCalls": CALLS}
INDEXED = Snapshot(SESSION, HistoryIndex(CALLS))


def items(*pairs: tuple[str, Any]) -> Items:
    return tuple(Item(*pair) for pair in pairs)


def when(*conditions: tuple[str, str, Any]) -> dict[str, Any]:
    return {"when": tuple(Condition(*each) for each in conditions)}


# One named case or more for each step: arguments, what goes in, what comes out.
STEP_CASES: dict[str, tuple[str, dict[str, Any], Items, Items]] = {
    "json parses and keeps the key": ("json", {}, items(("k", "[1]")), items(("k", [1]))),
    "select follows objects": (
        "select",
        {"path": "a.b"},
        items(("k", {"a": {"b": 0}})),
        items(("k", 0)),
    ),
    "select keeps a null and drops a miss": (
        "select",
        {"path": "a"},
        items(("k", {"a": None}), ("m", {})),
        items(("k", None)),
    ),
    "select numbers an array": (
        "select",
        {"path": "a"},
        items(("k", {"a": ["x", "y"]})),
        items(("0", "x"), ("1", "y")),
    ),
    "items spreads one level and keeps what is falsy": (
        "items",
        {},
        items(("k", [0, [1], None])),
        items(("0", 0), ("1", [1]), ("2", None)),
    ),
    "items drops what is no array": (
        "items",
        {},
        items(("k", {"0": 1}), ("m", "xy"), ("n", [1])),
        items(("0", 1)),
    ),
    "keyBy drops null and objects": (
        "keyBy",
        {"field": "id"},
        items(("0", {"id": 0}), ("1", {"id": None}), ("2", {"id": [1]}), ("3", {"id": True})),
        items(("0", {"id": 0}), ("true", {"id": True})),
    ),
    "keyByPattern takes the first group of the first match": (
        "keyByPattern",
        {"re": compile_pattern("a(.)", captures=True)},
        items(("k", "abac"), ("m", "x")),
        items(("b", "abac")),
    ),
    "keyByPattern drops a group that took no part": (
        "keyByPattern",
        {"re": compile_pattern("a(b)?", captures=True)},
        items(("k", "a")),
        (),
    ),
    "field is absent and not null": (
        "field",
        {"name": "p"},
        items(("k", {}), ("n", {"p": None}), ("x", [1])),
        items(("k", ABSENT), ("n", None)),
    ),
    "filter eq is structural and knows true from one": (
        "filter",
        when(("v", "eq", {"a": [1]})),
        items(("0", {"v": {"a": [1.0]}}), ("1", {"v": {"a": [True]}}), ("2", {})),
        items(("0", {"v": {"a": [1.0]}})),
    ),
    "filter ne admits what is absent": (
        "filter",
        when(("v", "ne", 1)),
        items(("0", {}), ("1", {"v": 1}), ("2", {"v": True})),
        items(("0", {}), ("2", {"v": True})),
    ),
    "filter notIn admits what is absent": (
        "filter",
        when(("v", "notIn", [0, None])),
        items(("0", {}), ("1", {"v": None}), ("2", {"v": 2})),
        items(("0", {}), ("2", {"v": 2})),
    ),
    "filter size is of arrays": (
        "filter",
        when(("v", "size", 1)),
        items(("0", {"v": [1]}), ("1", {"v": "x"})),
        items(("0", {"v": [1]})),
    ),
    "filter lte is of numbers, inclusive": (
        "filter",
        when(("v", "lte", 2)),
        items(("0", {"v": 2}), ("1", {"v": "1"}), ("2", {"v": True}), ("3", {"v": 3})),
        items(("0", {"v": 2})),
    ),
    "filter needs every test": (
        "filter",
        when(("v", "gte", 2), ("w", "eq", 1)),
        items(("0", {"v": 2, "w": 1}), ("1", {"v": 2}), ("2", {"v": 1, "w": 1})),
        items(("0", {"v": 2, "w": 1})),
    ),
    "filter gte is of numbers, inclusive": (
        "filter",
        when(("v", "gte", 2)),
        items(("0", {"v": 2}), ("1", {"v": 1}), ("2", {})),
        items(("0", {"v": 2})),
    ),
    "flattenKeys: arrays are leaves, empty objects vanish": (
        "flattenKeys",
        {},
        items(("k", {"b": [1], "a": {"c": {}}, "2": None, "1": 0})),
        items(("1", "1"), ("2", "2"), ("b", "b")),
    ),
    "sort is by number where all are": (
        "sort",
        {},
        items(("a", 10), ("b", 9), ("c", 9)),
        items(("b", 9), ("c", 9), ("a", 10)),
    ),
    "sort is by text where one is none": (
        "sort",
        {},
        items(("a", 10), ("b", 9), ("c", "x")),
        items(("a", 10), ("b", 9), ("c", "x")),
    ),
    "sort leaves equals in their order": (
        "sort",
        {},
        items(("a", "x"), ("b", "x"), ("c", "w")),
        items(("c", "w"), ("a", "x"), ("b", "x")),
    ),
    "sort is by code units": (
        "sort",
        {},
        items(("a", "\uffff"), ("b", "\U0001f600")),
        items(("b", "\U0001f600"), ("a", "\uffff")),
    ),
    "lines keeps the numbers of the text": (
        "lines",
        {},
        items(("k", "\ufeff a\x85\n\n\x1f\nb ")),
        items(("1", "a\x85"), ("3", "\x1f"), ("4", "b")),
    ),
    "matches is unanchored, over the value as text": (
        "matches",
        {"re": compile_pattern("^1,2$")},
        items(("a", [1, 2]), ("b", "x1,2")),
        items(("a", [1, 2])),
    ),
    "toolUses: both names and kind hold, success does not count": (
        "toolUses",
        {"names": ("Task",), "subagentType": "w"},
        items(("0", SESSION)),
        items(("2", CALLS[1])),
    ),
    "toolUses by the kind alone": (
        "toolUses",
        {"subagentType": "w"},
        items(("0", SESSION)),
        items(("2", CALLS[1])),
    ),
    "toolUses by names alone": (
        "toolUses",
        {"names": ("Bash",)},
        items(("0", SESSION)),
        items(("1", CALLS[0])),
    ),
    "toolUses without either takes every call that has an ordinal": (
        "toolUses",
        {},
        items(("0", {"toolCalls": [*CALLS, {"name": "Bash"}]})),
        items(("1", CALLS[0]), ("2", CALLS[1])),
    ),
    "toolUses of a snapshot that nothing indexes": (
        "toolUses",
        {"names": ("Bash",)},
        items(("0", Snapshot(SESSION))),
        items(("1", CALLS[0])),
    ),
    "toolUses of two snapshots are those of both": (
        "toolUses",
        {"names": ("Bash",)},
        items(("0", INDEXED), ("1", INDEXED)),
        items(("1", CALLS[0]), ("1", CALLS[0])),
    ),
    "toolUses of one snapshot, one that is indexed": (
        "toolUses",
        {"names": ("Task",)},
        items(("0", INDEXED)),
        items(("2", CALLS[1])),
    ),
    "userTexts keeps turns that match and are text, each with an ordinal": (
        "userTexts",
        {"re": compile_pattern("a")},
        items(
            (
                "0",
                {
                    "userMessages": [
                        {"index": 0, "text": "b"},
                        {"index": 1, "text": ["a"]},
                        {"index": 2},
                        {"text": "a"},
                        {"index": 4, "text": "a"},
                    ]
                },
            )
        ),
        items(("4", {"index": 4, "text": "a"})),
    ),
    "userTexts of a snapshot that nothing indexes": (
        "userTexts",
        {"re": compile_pattern("go")},
        items(("0", Snapshot(SESSION))),
        items(("0", {**TURN, "observedAtMs": 1000})),
    ),
    "userTexts of one that is indexed": (
        "userTexts",
        {"re": compile_pattern("go")},
        items(("0", INDEXED)),
        items(("0", {**TURN, "observedAtMs": 1000})),
    ),
    "userTexts adds the time of the observation": (
        "userTexts",
        {"re": compile_pattern("^/GO", True)},
        items(("0", SESSION)),
        items(("0", {"index": 0, "text": "/go now", "timestampMs": 400, "observedAtMs": 1000})),
    ),
    "agentType is exact": (
        "agentType",
        {"is": "w"},
        items(("0", [{"agentType": "w"}, {"agentType": "w2"}])),
        items(("0", {"agentType": "w"})),
    ),
    "first keeps its key": ("first", {}, items(("b", 1), ("a", 2)), items(("b", 1))),
    "ageMs of this very moment is none": (
        "ageMs",
        {},
        items(("0", {"timestampMs": 3, "observedAtMs": 3})),
        items(("0", {"timestampMs": 3, "observedAtMs": 3, "ageMs": 0})),
    ),
    "ageMs drops the future": (
        "ageMs",
        {},
        items(
            ("0", {"timestampMs": 1, "observedAtMs": 3}),
            ("1", {"timestampMs": 4, "observedAtMs": 3}),
        ),
        items(("0", {"timestampMs": 1, "observedAtMs": 3, "ageMs": 2})),
    ),
}

V = Violator
# One named case or more for each relation: left, right, strict, violators.
RELATION_CASES: dict[str, tuple[str, Items, Items, bool, Violators]] = {
    "empty names every item": (
        "empty",
        items(("a", 1), ("b", 2)),
        (),
        False,
        (V("a", 1), V("b", 2)),
    ),
    "empty reads one list alone": (
        "empty",
        items(("a", 1)),
        items(("a", 1)),
        False,
        (V("a", 1),),
    ),
    "nonEmpty names the extraction": ("nonEmpty", (), (), False, (V("name", None),)),
    "nonEmpty holds with one": ("nonEmpty", items(("a", None)), (), False, ()),
    "subset is by value": (
        "subset",
        items(("a", 1), ("b", True)),
        items(("x", 1.0)),
        False,
        (V("b", True),),
    ),
    "equal: left only, then right only": (
        "equal",
        items(("a", 1), ("b", 2)),
        items(("c", 3), ("d", 2)),
        False,
        (V("a", 1, "left"), V("c", 3, "right")),
    ),
    "implies is by key": (
        "implies",
        items(("a", 1), ("b", 1)),
        items(("a", 9)),
        False,
        (V("b", 1),),
    ),
    "ordered names the later of each bad pair": (
        "ordered",
        items(("a", 2), ("b", 1), ("c", 1)),
        (),
        False,
        (V("b", 1),),
    ),
    "ordered strictly names an equal one too": (
        "ordered",
        items(("a", 1), ("b", 1), ("c", 2)),
        (),
        True,
        (V("b", 1),),
    ),
    "ordered is by number between numbers": ("ordered", items(("a", 9), ("b", 10)), (), False, ()),
    "unchanged: shared keys, the value before beside it": (
        "unchanged",
        items(("a", 1), ("b", 2)),
        items(("b", 3), ("c", 4)),
        False,
        (V("b", 3, None, 2),),
    ),
    "unchanged knows absent from null": (
        "unchanged",
        items(("a", None)),
        items(("a", ABSENT)),
        False,
        (V("a", ABSENT, None, None),),
    ),
}

COMBINATOR_CASES: dict[str, tuple[str, Items, Items, Items]] = {
    "union: left, then what the right has more": (
        "union",
        items(("a", 1), ("b", 2)),
        items(("b", 9), ("c", 3)),
        items(("a", 1), ("b", 2), ("c", 3)),
    ),
    "intersect keeps left values": (
        "intersect",
        items(("a", 1), ("b", 2)),
        items(("b", 9)),
        items(("b", 2)),
    ),
    "onlyIn is by key": ("onlyIn", items(("a", 1), ("b", 2)), items(("b", 2)), items(("a", 1))),
}


def _step_fails(name: str) -> bool:
    op, arguments, given_, expected = STEP_CASES[name]
    found = STEPS[op].build(arguments)(given_)
    return found != expected or [identity(i.value) for i in found] != [
        identity(i.value) for i in expected
    ]


def _relation_fails(name: str) -> bool:
    op, left, right, strict, expected = RELATION_CASES[name]
    return RELATION_KINDS[op].find("name", left, right, strict) != expected


def _combinator_fails(name: str) -> bool:
    op, left, right, expected = COMBINATOR_CASES[name]
    return COMBINATOR_KINDS[op](left, right) != expected


@pytest.mark.parametrize("name", STEP_CASES)
def test_step(name: str) -> None:
    assert not _step_fails(name)


@pytest.mark.parametrize("name", RELATION_CASES)
def test_relation(name: str) -> None:
    assert not _relation_fails(name)


@pytest.mark.parametrize("name", COMBINATOR_CASES)
def test_combinator(name: str) -> None:
    assert not _combinator_fails(name)


def _mutants_of(run: Callable[..., Any]) -> Iterator[tuple[str, Callable[..., Any]]]:
    """A function of items made wrong in the ways a slip would."""
    yield "finds nothing", lambda *_: ()
    yield "takes everything", lambda *given: next(g for g in given if isinstance(g, tuple))
    yield "loses the first", lambda *given: run(*given)[1:]
    yield "loses the last", lambda *given: run(*given)[:-1]
    yield "says it twice", lambda *given: run(*given) * 2
    yield (
        "changes a key",
        lambda *given: tuple(each._replace(key=each.key + "x") for each in run(*given)),
    )
    yield (
        "changes a value",
        lambda *given: tuple(each._replace(value=(each.value, 1)) for each in run(*given)),
    )


@pytest.mark.parametrize("op", STEPS)
def test_a_step_that_is_changed_fails_a_named_case(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = STEPS[op]
    named = [name for name, case in STEP_CASES.items() if case[0] == op]
    mutants = list(_mutants_of(lambda *_: ()))
    for number in range(len(mutants)):

        def build(arguments: Any, number: int = number) -> Any:
            return list(_mutants_of(kind.build(arguments)))[number][1]

        monkeypatch.setattr(steps, "STEPS", {**STEPS, op: replace(kind, build=build)})
        monkeypatch.setitem(STEPS, op, replace(kind, build=build))  # type: ignore[arg-type]
        assert any(map(_step_fails, named)), (op, mutants[number][0])
        monkeypatch.undo()


@pytest.mark.parametrize("op", RELATION_KINDS)
def test_a_relation_that_is_changed_fails_a_named_case(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = RELATION_KINDS[op]
    named = [name for name, case in RELATION_CASES.items() if case[0] == op]
    for said, mutant in _mutants_of(kind.find):
        changed = replace(kind, find=mutant)
        monkeypatch.setitem(RELATION_KINDS, op, changed)  # type: ignore[arg-type]
        assert any(map(_relation_fails, named)), (op, said)
        monkeypatch.undo()
    others = [row for row in RELATION_KINDS.values() if row.op != op]
    for other in others:
        changed = replace(kind, find=other.find)
        monkeypatch.setitem(RELATION_KINDS, op, changed)  # type: ignore[arg-type]
        assert any(map(_relation_fails, named)), (op, other.op)
        monkeypatch.undo()


@pytest.mark.parametrize("op", COMBINATOR_KINDS)
def test_a_combinator_that_is_changed_fails_a_named_case(
    op: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = [name for name, case in COMBINATOR_CASES.items() if case[0] == op]
    others = [(other, run) for other, run in COMBINATOR_KINDS.items() if other != op]
    for said, mutant in (*_mutants_of(COMBINATOR_KINDS[op]), *others):
        monkeypatch.setitem(COMBINATOR_KINDS, op, mutant)  # type: ignore[arg-type]
        assert any(map(_combinator_fails, named)), (op, said)
        monkeypatch.undo()


def test_every_step_and_relation_has_a_case() -> None:
    assert {case[0] for case in STEP_CASES.values()} == set(STEPS)
    assert {case[0] for case in RELATION_CASES.values()} == set(RELATION_KINDS)
    assert {case[0] for case in COMBINATOR_CASES.values()} == set(COMBINATOR_KINDS)
    assert relations.RELATION_KINDS is RELATION_KINDS


# Supply, scope, witness, messages ------------------------------------------------------------


def rule(
    source: str = "pre",
    policy: str | None = None,
    relation: dict[str, Any] | None = None,
    message: str = "{key}={value}",
    **more: Any,
) -> Declaration:
    block: dict[str, Any] = {
        "mechanism": "scoped-valve",
        "extract": {"it": [{"op": "source", "of": source}]},
        "relate": [
            {
                "id": "r",
                "relation": relation or {"op": "empty", "of": "it"},
                "message": message,
            }
        ],
        "witness": {
            "extract": {"open": [{"op": "source", "of": "command"}]},
            "relate": [{"id": "w", "relation": {"op": "nonEmpty", "of": "open"}, "message": "w"}],
        },
        **more,
    }
    if policy is not None:
        block["supply"] = {source: policy}
    return load_one(block)


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (None, Unjudgeable("pre", "is absent")),
        ("error", Unjudgeable("pre", "is absent")),
        ("pass", NotApplicable("supply-pass", "pre")),
        ("empty", Passed()),
    ],
)
def test_an_absent_source_is_disposed_of_as_declared(policy: str | None, expected: object) -> None:
    assert judge(rule(policy=policy), World()) == expected


@pytest.mark.parametrize("value", ["", None])
def test_an_empty_text_and_a_null_are_supplied(value: Any) -> None:
    assert isinstance(judge(rule(), World(pre=value)), Broken)


def test_what_nothing_proves_is_not_judged_under_any_policy() -> None:
    for policy in (None, "pass", "empty"):
        assert judge(rule(policy=policy), World(pre=UNPROVEN)) == NotObserved("pre")
    scoped = rule("post", scope={"source": "pre"})
    assert judge(scoped, World(pre=UNPROVEN, post="x")) == NotObserved("pre")


@pytest.mark.parametrize("policy", ["error", "pass", "empty"])
def test_text_that_is_not_json_is_a_fault_under_any_policy(policy: str) -> None:
    extract = {"it": [{"op": "source", "of": "pre"}, {"op": "json"}]}
    for text in ("{", "NaN", "'a'", "[" * 5000, 7):
        judgment = judge(rule(policy=policy, extract=extract), World(pre=text))
        assert isinstance(judgment, Unjudgeable), text
        assert judgment.source == "pre"


def test_a_witness_opens_a_broken_world_alone() -> None:
    broken = World(pre="x", command="let me")
    assert judge(rule(), broken) == Broken(judge(rule(), World(pre="x")).breaks, True)  # type: ignore[union-attr]
    assert judge(rule(), World(pre="x")).opened is False  # type: ignore[union-attr]
    assert judge(rule(), World(command="let me")) == Unjudgeable("pre", "is absent")
    assert judge(rule(), World(pre="x", command=UNPROVEN)).opened is False  # type: ignore[union-attr]


def test_a_message_is_about_the_first_and_counts_the_rest() -> None:
    extract = {"it": [{"op": "source", "of": "pre"}, {"op": "lines"}]}
    judgment = judge(
        rule(extract=extract, message="{key} {value} {before} {x}"), World(pre="{key}\nb\nc")
    )
    assert isinstance(judgment, Broken)
    assert judgment.breaks[0].message == "1 {key} {before} {x} (+2)"


@pytest.mark.parametrize(
    ("scope", "world", "admitted"),
    [
        ({"source": "target.path"}, World(path="a"), True),
        ({"source": "target.path"}, World(), False),
        ({"source": "target.path", "include": ["b$"]}, World(path="ab"), True),
        ({"source": "target.path", "include": ["^b"]}, World(path="ab"), False),
        ({"source": "target.path", "exclude": ["B"]}, World(path="ab"), True),
        (
            {"source": "target.path", "exclude": ["B"], "excludeIgnoreCase": True},
            World(path="ab"),
            False,
        ),
        (
            {"source": "target.path", "include": ["A"], "excludeIgnoreCase": True},
            World(path="a"),
            False,
        ),
        ({"source": "post"}, World(post=None), False),
        ({"source": "command", "include": ["git"]}, World(command="x; git y"), True),
    ],
)
def test_scope(scope: dict[str, Any], world: World, admitted: bool) -> None:
    judgment = judge(rule("changes", "empty", scope=scope), world)
    assert (judgment != NotApplicable("scope")) == admitted


class _Watched(World):
    """Remembers which facts were asked for."""

    asked: list[str]

    def fact(self, name: str) -> Any:
        self.asked.append(name)
        return super().fact(name)

    def __getattribute__(self, name: str) -> Any:
        if name in ("path", "pre", "post", "changes", "command", "actor", "sidecar", "transcript"):
            object.__getattribute__(self, "asked").append(name)
        return super().__getattribute__(name)


FACTS = {"target.path": "path", "pre": "pre", "post": "post", "command": "command"}


@given(st.sampled_from(sorted(FACTS)), st.lists(st.sampled_from(["a", "^b", "c$"]), max_size=2))
@settings(max_examples=60, deadline=None)
def test_a_scope_reads_no_other_source(source: str, patterns: list[str]) -> None:
    declaration = rule("actor", scope={"source": source, "include": [*patterns, "^never$"]})
    asked: list[str] = []
    watched = type("Watched", (_Watched,), {"asked": asked})
    world = watched(path="x", pre="x", post="x", command="x")
    asked.clear()
    assert judge(declaration, world) == NotApplicable("scope")
    assert set(asked) == {FACTS[source]} | ({source} if source != "target.path" else set())


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)
STEP_TEXTS: list[dict[str, Any]] = [
    {"op": "json"},
    {"op": "select", "path": "a.b"},
    {"op": "items"},
    {"op": "keyBy", "field": "a"},
    {"op": "keyByPattern", "re": "(.)"},
    {"op": "field", "name": "a"},
    {"op": "filter", "when": [{"field": "a", "eq": [1]}, {"field": "b", "gte": 1}]},
    {"op": "filter", "when": [{"field": "a", "notIn": [{}]}]},
    {"op": "flattenKeys"},
    {"op": "sort"},
    {"op": "lines"},
    {"op": "matches", "re": "a|1"},
    {"op": "toolUses"},
    {"op": "toolUses", "names": ["a"], "subagentType": "b"},
    {"op": "userTexts", "re": "", "i": True},
    {"op": "agentType", "is": "a"},
    {"op": "first"},
    {"op": "ageMs"},
]


@given(
    st.lists(st.sampled_from(STEP_TEXTS), max_size=4),
    JSON_VALUES | st.fixed_dictionaries({"userMessages": JSON_VALUES, "toolCalls": JSON_VALUES}),
    st.sampled_from(["empty", "nonEmpty", "ordered"]),
)
@settings(max_examples=200, deadline=None)
def test_a_pipeline_never_raises_on_any_json_value(
    pipeline: list[dict[str, Any]], value: Any, op: str
) -> None:
    extract = {"it": [{"op": "source", "of": "s"}, *pipeline]}
    declaration = rule(
        "s", relation={"op": op, "of": "it"}, extract=extract, sources={"s": {"transcript": True}}
    )
    memo = Memo()
    for world in (World(transcript=value), World(transcript=value)):
        judgment = judge(declaration, world, memo)
        assert judgment == judge(declaration, world)
        assert isinstance(judgment, Passed | Broken | Unjudgeable)


def test_a_value_nested_too_deeply_is_not_judged() -> None:
    deep: Any = {}
    for _ in range(20_000):
        deep = {"a": deep}
    extract = {"it": [{"op": "source", "of": "s"}, {"op": "flattenKeys"}]}
    declaration = rule("s", extract=extract, sources={"s": {"transcript": True}})
    assert judge(declaration, World(transcript=deep)) == Unjudgeable("s", "is nested too deeply")


def test_the_index_of_a_session_finds_what_the_snapshot_holds() -> None:
    calls = [
        {"index": n, "name": "Bash" if n % 3 else "Task", "args": {"subagent_type": f"k{n % 2}"}}
        for n in range(20)
    ]
    index = steps.HistoryIndex(calls)
    for arguments in ({}, {"names": ("Task",)}, {"subagentType": "k1"}, {"names": ()}):
        run = STEPS["toolUses"].build(arguments)
        for count in range(0, 20, 3):
            plain = {"toolCalls": calls[:count], "userMessages": []}
            assert run((Item("0", Snapshot(plain, index)),)) == run((Item("0", plain),))


# JavaScript ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (1, "1"),
        (1.0, "1"),
        (-0.0, "0"),
        (0.1, "0.1"),
        (1e21, "1e+21"),
        (1e20, "100000000000000000000"),
        (1.5e-7, "1.5e-7"),
        (1e-6, "0.000001"),
        (123456789012345680000.0, "123456789012345680000"),
        (-12.5, "-12.5"),
        (float("inf"), "Infinity"),
        (5e-324, "5e-324"),
        ([1, None, [2, "x"]], "1,,2,x"),
        ([], ""),
        ({"a": 1}, "[object Object]"),
        ([{}], "[object Object]"),
        (ABSENT, "undefined"),
        (2**53 + 1.0, "9007199254740992"),
    ],
)
def test_a_value_as_text(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_a_number_beyond_what_a_double_holds() -> None:
    assert parse_json("[9007199254740993, 1e3, 12345678901234567890123]") == [
        9007199254740992,
        1000.0,
        1.2345678901234568e22,
    ]


ATOMS = [
    "a",
    "b",
    "B",
    ".",
    "^",
    "$",
    "\\b",
    "\\B",
    "\\d",
    "\\w",
    "\\s",
    "\\S",
    "\\W",
    "\\D",
    "[a-c]",
    "[^a\\s]",
    "[\\d-x]",
    "[a-]",
    "[]",
    "[^]",
    "\\n",
    "x{",
    "{",
    "}",
    "]",
    "-",
    "é",
    "\\u00e9",
    "😀",
    "\\x41",
    "\\cJ",
    "\\0",
    "\\-",
    "\\e",
    "[\\b]",
    "[\\S]",
    "[-a]",
    "[^\\W]",
    "[[&&a]",
    "~",
    "K",
    "(?=a)",
    "(?!b)",
    "(?<=a)",
    "(?<!\\s)",
    "/",
    "_",
    "1",
    "#",
    "\u2028",
    "\ufeff",
    " ",
]
SUBJECTS = [
    "",
    "a",
    "ab",
    "aab\nb",
    "B a",
    "é",
    "É",
    "😀",
    "a😀b",
    "x{",
    "{",
    "\u2028a",
    "\ufeff a",
    "K",
    "k",
    "\u212a",
    "\u017fs",
    "A\n",
    "\x00\x08",
    "1_#",
    "a\\b",
    "ba ab",
    "--",
    "x{2}",
    "a-]",
    "aaaa",
    "\ud83d",
]


def _pattern(draw: random.Random, depth: int) -> str:
    chance = draw.random()
    if depth <= 0 or chance < 0.5:
        return draw.choice(ATOMS)
    inner = _pattern(draw, depth - 1)
    if chance < 0.62:
        return f"({inner})"
    if chance < 0.68:
        return f"(?:{inner})"
    if chance < 0.78:
        return inner + draw.choice(
            ["*", "+", "?", "{2}", "{1,2}", "*?", "+?", "{0,}", "{,2}", "{2,1}"]
        )
    if chance < 0.88:
        return f"({inner})\\1" if chance < 0.82 else f"(?<n>{inner})\\k<n>"
    return inner + draw.choice(["", "|"]) + _pattern(draw, depth - 1)


@pytest.mark.skipif(shutil.which("node") is None, reason="no JavaScript here to compare with")
def test_a_pattern_means_what_it_means_in_javascript() -> None:
    draw = random.Random(11)
    cases = [(_pattern(draw, 4), draw.random() < 0.3) for _ in range(1500)]
    script = """
      const {cases, subjects} = JSON.parse(require('fs').readFileSync(0, 'utf8'));
      console.log(JSON.stringify(cases.map(([p, i]) => {
        let r; try { r = new RegExp(p, i ? 'i' : ''); } catch (e) { return null; }
        return subjects.map(s => { const m = r.exec(s);
          return m ? [m[1] === undefined ? null : m[1]] : 0; });
      })));"""
    ran = subprocess.run(
        ["node", "-e", script],
        input=json.dumps({"cases": cases, "subjects": SUBJECTS}),
        capture_output=True,
        text=True,
        check=True,
    )
    compared = 0
    for (source, ignore_case), expected in zip(cases, json.loads(ran.stdout), strict=True):
        for captures in (False, True):
            try:
                pattern = compile_pattern(source, ignore_case, captures)
            except PatternError:
                continue
            assert expected is not None, source
            for subject, found in zip(SUBJECTS, expected, strict=True):
                assert pattern.matches(subject) == (found != 0), (source, ignore_case, subject)
                if captures:
                    assert pattern.first_group(subject) == (found[0] if found else None), source
            compared += 1
    assert compared > 1500


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("(", "not closed"),
        (")", "closes nothing"),
        ("[a", "not closed"),
        ("*a", "repeats nothing"),
        ("a**", "repeats a repeat"),
        ("a++", "repeats a repeat"),
        ("(?>a)", "does not know"),
        ("(?i)a", "does not know"),
        ("(?<=a*)b", "no fixed width"),
        ("(?<=(a))b", "capture"),
        ("\\1(a)", "not closed before it"),
        ("\\07", "octal"),
        ("\\p{L}", "u flag"),
        ("\\u{1F600}", "u flag"),
        ("[z-a]", "out of order"),
        ("a{3,2}", "out of order"),
        ("\\", "ends in a backslash"),
        ("(?=a)*", "repeats an assertion"),
        ("(?<n>a)(?<n>b)", "two groups named n"),
        ("(((?:a{1000}){1000}){1000}){1000}", "repeats to more"),
        ("(?:a{1000}){100}|(?:a{1000}){101}", "repeats to more"),
        ("(?:(?:a?){1000}){1000}", "repeats to more"),
    ],
)
def test_a_pattern_that_is_refused(source: str, said: str) -> None:
    with pytest.raises(PatternError, match=said):
        compile_pattern(source)


@pytest.mark.parametrize("source", ["(?:x)", "(?:(a)|b)*", "(a*)*"])
def test_a_pattern_whose_first_group_means_no_one_thing(source: str) -> None:
    with pytest.raises(PatternError):
        compile_pattern(source, captures=True)


def test_ignoring_case_is_of_ascii_or_refused() -> None:
    assert compile_pattern("k", True).matches("K")
    assert not compile_pattern("k", True).matches("\u212a")
    assert compile_pattern("[가-힣]", True).matches("한")
    with pytest.raises(PatternError, match="outside ASCII"):
        compile_pattern("é", True)
