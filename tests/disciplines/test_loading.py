"""Files of disciplines: what loads, and the place and words of every mistake."""

from __future__ import annotations

import copy
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from recorder.disciplines.catalogue import MECHANISMS
from recorder.disciplines.loading import load_disciplines, merged
from recorder.disciplines.schema import schema
from recorder.refusal import Refusal

GOOD = {
    "mechanism": "self-absolution-ban",
    "scope": {"source": "target.path", "include": ["x"], "exclude": [], "excludeIgnoreCase": True},
    "supply": {"state": "pass", "pre": "empty"},
    "extract": {
        "was": [{"op": "source", "of": "state"}, {"op": "json"}, {"op": "keyBy", "field": "id"}],
        "pre": [{"op": "source", "of": "pre"}, {"op": "matches", "re": "a", "i": True}],
        "post": [{"op": "source", "of": "post"}, {"op": "lines"}],
        "both": [
            {"op": "union", "of": ["pre", "post"]},
            {"op": "filter", "when": [{"field": "n", "eq": 1}]},
        ],
        "lost": [{"op": "onlyIn", "of": "pre", "notIn": "post"}, {"op": "first"}],
    },
    "relate": [
        {"id": "a", "relation": {"op": "unchanged", "of": "was"}, "message": "{key}"},
        {"id": "b", "relation": {"op": "empty", "of": "lost"}, "message": "m"},
        {"id": "c", "relation": {"op": "empty", "of": "both"}, "message": "m"},
    ],
    "witness": {"relate": [{"id": "w", "relation": {"op": "empty", "of": "pre"}, "message": "m"}]},
}
SIDES = {
    "mechanism": "pairing",
    "sources": {"a": {"file": "a.json"}, "b": {"file": "b/../c"[:1]}},
    "extract": {
        "x": [{"op": "source", "of": "a"}, {"op": "json"}, {"op": "flattenKeys"}],
        "y": [{"op": "source", "of": "b"}],
    },
    "relate": [
        {
            "id": "p",
            "relation": {"op": "equal", "of": ["x", "y"]},
            "messageBySide": {"left": "l", "right": "r"},
        }
    ],
}
DRAFT = {"id": "d", "why": "w", "draft": True}


def entries(*blocks: dict[str, Any]) -> dict[str, Any]:
    listed = [
        {"id": f"e{n}", "why": "w", "enforce": "block", "declare": block}
        for n, block in enumerate(blocks)
    ]
    return {"disciplines": [*listed, DRAFT]}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from _places(value[key], (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _places(each, (*path, number))


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        value = value[part]
    return value


def _mutants(whole: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Each place with a key too many, one too few, and values of other kinds."""
    for path in _places(whole):
        value = _at(whole, path)
        if path:
            for other in ("", "zzz", 7, None, True, [], {}, ["zzz"], {"zzz": 1}):
                if other != value:
                    mutant = copy.deepcopy(whole)
                    _at(mutant, path[:-1])[path[-1]] = copy.deepcopy(other)
                    yield path, mutant
        if isinstance(value, dict):
            mutant = copy.deepcopy(whole)
            _at(mutant, path)["zzz"] = 1
            yield path, mutant
            for key in value:
                mutant = copy.deepcopy(whole)
                del _at(mutant, path)[key]
                yield path, mutant
        if isinstance(value, list):
            mutant = copy.deepcopy(whole)
            _at(mutant, path).append("zzz")
            yield path, mutant


def _reasons(content: bytes) -> tuple[str, ...]:
    try:
        load_disciplines(content, "f.json")
    except Refusal as refusal:
        return refusal.reasons
    return ()


def _lines_of(text: str, path: tuple[Any, ...]) -> tuple[int, int]:
    """The first and last line of a place, by an independent reader."""
    node = yaml.compose(text, Loader=yaml.CSafeLoader)
    last = 0
    for part in path:
        assert node is not None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == part:
                    last = key.start_mark.line
                    node = value
                    break
        else:
            node = node.value[part]
            last = node.start_mark.line
    assert node is not None
    return min(last, node.start_mark.line) + 1, node.end_mark.line + 1


def test_loader_and_schema_refuse_the_same_shapes_each_at_its_place() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    whole = entries(GOOD, SIDES)
    assert not _reasons(json.dumps(whole).encode())
    validator.validate(whole)
    refused = 0
    # A part of them, always the same: the schema is slow to hold one mutant to.
    for path, mutant in random.Random(1).sample(list(_mutants(whole)), 350):
        text = json.dumps(mutant, indent=1)
        reasons = _reasons(text.encode())
        by_schema = not validator.is_valid(mutant)
        assert reasons or not by_schema, (path, text)
        # What the schema cannot say is about references, repeats, patterns and mechanisms.
        refused += by_schema
        for reason in reasons:
            found = re.match(r"f\.json:(\d+):(\d+): .*; admitted here: .+", reason)
            assert found is not None, reason
        if by_schema and path:
            line = int(reasons[0].split(":")[1])
            # A mistake is named in the entry that it was made in, or in what holds that.
            first, last = _lines_of(text, path[:2] if len(path) > 1 else path)
            assert first <= line <= last, (path, reasons)
    assert refused > 200


@pytest.mark.parametrize(
    ("share", "least"), [(50, 150), pytest.param(None, 4000, marks=pytest.mark.slow)]
)
def test_every_error_of_the_handed_schema_has_its_place(
    conformance: Path, share: int | None, least: int
) -> None:
    draw = random.Random(3)
    handed = json.loads((conformance / "schema" / "algebra-declaration.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(handed)
    refused = 0
    for path in sorted((conformance / "declarations").glob("*.json")):
        declaration = json.loads(path.read_text("utf-8"))
        validator.validate(declaration)
        mutants = list(_mutants(declaration))
        for _, mutant in mutants if share is None else draw.sample(mutants, share):
            if not validator.is_valid(mutant):
                refused += 1
                reasons = _reasons(json.dumps(mutant, indent=1).encode())
                assert reasons, mutant
                assert re.match(r"f\.json:\d+:\d+: .*admitted here", reasons[0]), mutant
    assert refused > least


def test_the_handed_declarations_are_of_our_schema(conformance: Path) -> None:
    validator = jsonschema.Draft202012Validator(schema())
    for path in sorted((conformance / "declarations").glob("*.json")):
        validator.validate(json.loads(path.read_text("utf-8")))


def _changed(block: dict[str, Any], change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    changed = copy.deepcopy(block)
    change(changed)
    return changed


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("a reserved mechanism", {**GOOD, "mechanism": "delegated-scope"}, "`mechanism` is"),
    (
        "an axis that the mechanism does not read",
        {**GOOD, "mechanism": "pairing"},
        "does not read the axis change",
    ),
    (
        "a relation that the mechanism does not have",
        _changed(GOOD, lambda b: b.update(mechanism="added-only")),
        "does not relate by `unchanged`",
    ),
    (
        "a mechanism on another scope",
        {
            "mechanism": "naming",
            "scope": {"source": "pre"},
            "extract": {"x": [{"op": "source", "of": "target.path"}]},
            "relate": [{"id": "a", "relation": {"op": "empty", "of": "x"}, "message": "m"}],
        },
        "admitted here: target.path",
    ),
    (
        "a mechanism without its witness",
        _changed(GOOD, lambda b: (b.pop("witness"), b.update(mechanism="scoped-valve"))),
        "has no witness",
    ),
    (
        "a circle of references",
        _changed(
            GOOD,
            lambda b: b["extract"].update(
                lost=[{"op": "union", "of": ["both", "pre"]}],
                both=[{"op": "union", "of": ["lost", "pre"]}],
            ),
        ),
        "refers to itself",
    ),
    (
        "a reference to nothing",
        _changed(GOOD, lambda b: b["relate"][1]["relation"].update(of="gone")),
        "is 'gone'",
    ),
    (
        "a relation of one side over two",
        _changed(GOOD, lambda b: b["relate"][1]["relation"].update(of="was")),
        "has two sides",
    ),
    (
        "a pair over one side",
        _changed(GOOD, lambda b: b["relate"][0]["relation"].update(of="pre")),
        "has one side",
    ),
    (
        "a combinator over two sides",
        _changed(
            GOOD, lambda b: b["extract"].update(lost=[{"op": "intersect", "of": ["was", "pre"]}])
        ),
        "has two sides",
    ),
    (
        "one identifier twice",
        _changed(GOOD, lambda b: b["relate"][1].update(id="a")),
        "is there twice",
    ),
    (
        "a supply of no source",
        _changed(GOOD, lambda b: b["supply"].update(other="pass")),
        "names no source `other`",
    ),
    (
        "an empty list for the paired source",
        _changed(GOOD, lambda b: b["supply"].update(state="empty")),
        "admitted here: error, pass",
    ),
    (
        "a file that leaves the tree",
        _changed(SIDES, lambda b: b["sources"].update(a={"file": "a/../../b"})),
        "leaves the tree",
    ),
    (
        "a source under a fixed name",
        _changed(SIDES, lambda b: b["sources"].update(pre={"file": "x"})),
        "cannot be bound",
    ),
    (
        "a pattern that has another meaning",
        _changed(GOOD, lambda b: b["extract"]["pre"][1].update(re="\\p{L}")),
        "needs the u flag",
    ),
    (
        "a scope on a source without text",
        _changed(GOOD, lambda b: b["scope"].update(source="actor")),
        "admitted here: target.path, pre, post, command",
    ),
    (
        "a step after a combinator's place",
        _changed(GOOD, lambda b: b["extract"]["pre"].append({"op": "union", "of": ["a", "b"]})),
        "stands after the first step",
    ),
]


@pytest.mark.parametrize(
    ("block", "said"), [row[1:] for row in REFUSED], ids=[r[0] for r in REFUSED]
)
def test_refused(block: dict[str, Any], said: str) -> None:
    reasons = _reasons(json.dumps(entries(block), indent=1).encode())
    assert len(reasons) == 1
    assert said in reasons[0]
    assert re.match(r"f\.json:\d+:\d+: ", reasons[0])


def test_every_mechanism_is_of_the_table() -> None:
    assert len(MECHANISMS) == 18
    assert [row.name for row in MECHANISMS.values() if row.reserved] == ["delegated-scope"]


def test_every_entry_that_is_wrong_is_named() -> None:
    bad = {**GOOD, "mechanism": "nothing"}
    reasons = _reasons(json.dumps(entries(bad, GOOD, bad), indent=1).encode())
    assert len(reasons) == 2


def test_an_identifier_labels_one_entry_of_one_file_and_of_several() -> None:
    twice = entries(GOOD)
    twice["disciplines"].append(dict(twice["disciplines"][0]))
    assert "the id `e0` is the one of f.json:" in _reasons(json.dumps(twice, indent=1).encode())[0]
    one = load_disciplines(json.dumps(entries(GOOD)).encode(), "one.json")
    with pytest.raises(Refusal, match=r"the id `e0` is the one of one\.json:1:18 too"):
        merged([one, load_disciplines(json.dumps(entries(GOOD)).encode(), "two.json")])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "f.yaml:1:1: the file is not a mapping"),
        ("- a", "f.yaml:1:1: the file is not a mapping"),
        ("disciplines: []\nother: 1", "f.yaml:2:1: the file has no key `other`"),
        ("disciplines: [{id: a, draft: true}]", "f.yaml:1:15: a draft lacks the key `why`"),
        ("disciplines: [{id: a, why: w, draft: false}]", "f.yaml:1:38: `draft` is not true"),
        ("disciplines: [{id: a, why: w, draft: 'true'}]", "f.yaml:1:38: `draft` is not true"),
        ("disciplines: [{id: a, why: w, draft: true, enforce: block}]", "no key `enforce`"),
        ("disciplines: [{id: a, enforce: warn, declare: {}}]", "f.yaml:1:32: `enforce` is 'warn'"),
        ("disciplines: [{id: a, id: b}]", "has the key `id` twice"),
        ("disciplines: [{id: !!python/name:os.system a}]", "f.yaml:1:15"),
        ("disciplines: [", "f.yaml:2:1: "),
        ("disciplines: &a [*a]", "f.yaml:1:"),
    ],
)
def test_a_file_of_another_shape(text: str, said: str) -> None:
    with pytest.raises(Refusal) as refused:
        load_disciplines(text.encode(), "f.yaml")
    assert said in refused.value.reasons[0]


def test_a_file_that_is_not_utf8() -> None:
    with pytest.raises(Refusal, match="is not UTF-8"):
        load_disciplines(b"disciplines: \xff", "f.yaml")


def test_plain_words_stay_what_they_are() -> None:
    text = """disciplines:
  - id: no
    declare:
      mechanism: added-only
      extract:
        x:
          - { op: source, of: post }
          - { op: json }
          - { op: filter, when: [{ field: yes, eq: on }, { field: on, eq: 010 }] }
      relate: [{ id: a, relation: { op: empty, of: x }, message: no }]
"""
    entry = load_disciplines(text.encode(), "f.yaml").entries[0]
    assert entry.id == "no"
    assert entry.declaration is not None
    assert entry.declaration.body.relate[0].message == "no"
