"""The vectors that were handed with the language."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recorder.disciplines.declaration import Declaration
from recorder.disciplines.judging import Broken, NotApplicable, Passed, Unjudgeable, judge
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.relations import COMBINATOR_KINDS, RELATION_KINDS, Violator
from recorder.disciplines.values import ABSENT
from recorder.refusal import Refusal
from tests.disciplines.conftest import items_of, load_one, world_of

Cases = Callable[[str], list[dict[str, Any]]]


def _declaration(conformance: Path, name: str) -> Declaration:
    path = conformance / "declarations" / f"{name}.json"
    loaded = load_disciplines(path.read_bytes(), path.name).entries[0]
    assert loaded.id == name
    assert loaded.declaration is not None
    return loaded.declaration


def _witness(violator: Violator) -> dict[str, Any]:
    found = {"key": violator.key, "value": violator.value}
    return found if violator.side is None else {**found, "side": violator.side}


def test_every_judgment(vectors: Cases, conformance: Path) -> None:
    cases = vectors("judge")
    for case in cases:
        declaration = _declaration(conformance, case["declaration"])
        judgment = judge(declaration, world_of(case["world"], declaration.sources))
        expect = case["expect"]
        name = f"{case['declaration']}: {case['name']}"
        match expect["kind"]:
            case "pass":
                assert isinstance(judgment, Passed), name
            case "supply-error":
                assert isinstance(judgment, Unjudgeable), name
                assert judgment.source == expect["source"], name
            case "not-applicable":
                assert isinstance(judgment, NotApplicable), name
                assert judgment.reason == expect["reason"], name
                assert judgment.source == expect.get("source"), name
            case "broken":
                assert isinstance(judgment, Broken), name
                assert judgment.opened == expect.get("witnessOpens", judgment.opened), name
                _same_breaks(judgment, expect.get("breaks"), name)
            case _:
                pytest.fail(name)
    assert len(cases) > 50


def _same_breaks(judgment: Broken, expected: list[dict[str, Any]] | None, name: str) -> None:
    if expected is None:
        return
    assert [each.id for each in judgment.breaks] == [each["id"] for each in expected], name
    for found, wanted in zip(judgment.breaks, expected, strict=True):
        if "witnesses" in wanted:
            assert list(map(_witness, found.violators)) == wanted["witnesses"], name
        if "keys" in wanted:
            assert [violator.key for violator in found.violators] == wanted["keys"], name
        if "values" in wanted:
            assert [violator.value for violator in found.violators] == wanted["values"], name
        if "message" in wanted:
            assert found.message == wanted["message"], name


def test_every_step(vectors: Cases) -> None:
    for case in vectors("steps"):
        pipeline = load_one(
            {
                "mechanism": "scoped-valve",
                "sources": {"doc": {"sidecar": True}},
                "extract": {"it": [{"op": "source", "of": "doc"}, case["step"]]},
                "relate": [{"id": "a", "relation": {"op": "empty", "of": "it"}, "message": "m"}],
                "witness": {
                    "relate": [{"id": "w", "relation": {"op": "empty", "of": "it"}, "message": "m"}]
                },
            }
        ).body.extract["it"]
        found = pipeline.steps[0].run(items_of(case["items"]))
        assert found == items_of(case["expect"]), case["name"]


def test_every_step_that_is_a_fault_has_its_place(vectors: Cases) -> None:
    for case in vectors("step-faults"):
        block = {
            "mechanism": "precedent",
            "sources": {"doc": {"sidecar": True}},
            "extract": {"it": [{"op": "source", "of": "doc"}, case["step"]]},
            "relate": [{"id": "a", "relation": {"op": "nonEmpty", "of": "it"}, "message": "m"}],
        }
        content = json.dumps({"disciplines": [{"id": "x", "declare": block}]}, indent=1).encode()
        with pytest.raises(Refusal) as refused:
            load_disciplines(content, "f.json")
        (reason,) = refused.value.reasons
        line = int(reason.removeprefix("f.json:").split(":")[0])
        assert 18 <= line <= 32, (case, reason)
        assert "admitted here" in reason, reason
        kept = load_disciplines(content, "f.json", allow_unresolved=True).entries[0]
        assert kept.declaration is None
        assert kept.fault == reason


def test_every_relation_and_combinator(vectors: Cases) -> None:
    for case in vectors("relations"):
        relation = dict(case["relation"])
        op = relation.pop("op")
        left, right = items_of(case["left"]), items_of(case["right"] or [])
        name = case["name"]
        if op in COMBINATOR_KINDS:
            assert COMBINATOR_KINDS[op](left, right) == items_of(case["witnesses"]), name
            continue
        found = RELATION_KINDS[op].find(
            "<extract-name>", left, right, relation.get("strict", False)
        )
        assert list(map(_witness, found)) == case["witnesses"], name
        assert all(v.before is not ABSENT for v in found) == (op == "unchanged" or not found), name
