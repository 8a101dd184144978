"""The source of every step, relation and combinator, changed at one place: a named case fails.

A mutant is the module with one comparison, condition, number or choice made wrong. What survives
is listed with why it means the same.
"""

from __future__ import annotations

import ast
import copy
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recorder.disciplines import relations, steps
from recorder.disciplines.relations import COMBINATOR_KINDS, RELATION_KINDS
from recorder.disciplines.steps import STEPS
from tests.disciplines import test_language as language

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"any": "all", "all": "any"}

# Functions of the two modules that are no step, relation or combinator: tested by themselves.
APART = frozenset({"HistoryIndex", "SupplyFaultError"})


def _changes(node: ast.AST) -> Iterator[tuple[str, Callable[[Any], None]]]:
    """Each way to make one node wrong: what is said of it, and what does it to a copy."""
    match node:
        case ast.Compare(ops=ops):
            for number, operator in enumerate(ops):
                if type(operator) in SWAPPED:
                    new = SWAPPED[type(operator)]()
                    yield (
                        f"{type(operator).__name__} to {type(new).__name__}",
                        lambda n, number=number, new=new: n.ops.__setitem__(number, new),
                    )
        case ast.BoolOp(op=operator):
            new = SWAPPED[type(operator)]()
            yield f"{type(operator).__name__} swapped", lambda n: setattr(n, "op", new)
        case ast.If() | ast.IfExp():
            yield (
                "its condition negated",
                lambda n: setattr(n, "test", ast.UnaryOp(ast.Not(), n.test)),
            )
        case ast.comprehension(ifs=[_, *_]):
            yield "its filter gone", lambda n: setattr(n, "ifs", [])
        case ast.Constant(value=bool() as value):
            yield f"{value} flipped", lambda n: setattr(n, "value", not value)
        case ast.Constant(value=int() as value):
            yield f"{value} plus one", lambda n: setattr(n, "value", value + 1)
        case ast.Name(id=name) if name in NAMES:
            yield f"{name} to {NAMES[name]}", lambda n: setattr(n, "id", NAMES[name])


def _mutants(module: ModuleType) -> Iterator[tuple[str, ast.Module]]:
    """Every mutant, by the function it is in and the text of the changed place."""
    source = Path(str(module.__file__)).read_text("utf-8")
    tree = ast.parse(source)
    for position, top in enumerate(tree.body):
        if not isinstance(top, ast.FunctionDef) or top.name in APART:
            continue
        for number, node in enumerate(ast.walk(top)):
            for said, change in _changes(node):
                whole = copy.deepcopy(tree)
                own = list(ast.walk(whole.body[position]))[number]
                place = ast.get_source_segment(source, node) or ast.unparse(own)
                change(own)
                yield f"{top.name}: {said}: {' '.join(place.split())}", whole


def _loaded(module: ModuleType, tree: ast.Module) -> dict[str, Any]:
    """The names of a mutated module."""
    made = ModuleType(module.__name__)
    made.__file__ = module.__file__
    code = compile(ast.fix_missing_locations(tree), "<mutant>", "exec")
    kept = sys.modules[module.__name__]
    sys.modules[module.__name__] = made  # a dataclass looks its module up
    try:
        exec(code, made.__dict__)
    finally:
        sys.modules[module.__name__] = kept
    return made.__dict__


def _fails(check: Callable[[str], bool], name: str) -> bool:
    try:
        return check(name)
    except Exception:  # noqa: BLE001 - whatever a mutant raises is a case that fails
        return True


def _survivors(
    module: ModuleType,
    tables: dict[str, tuple[dict[str, Any], Callable[[str], bool], dict[str, Any]]],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[int, set[str]]:
    """How many mutants there are, and those under which every named case holds."""
    count, alive = 0, set()
    for said, tree in _mutants(module):
        count += 1
        names = _loaded(module, tree)
        with monkeypatch.context() as patch:
            for table, (kinds, _, _) in tables.items():
                for op, kind in names[table].items():
                    patch.setitem(kinds, op, kind)
            if not any(
                _fails(check, name) for _, check, cases in tables.values() for name in cases
            ):
                alive.add(said)
    return count, alive


SORTED = "sorted asks only whether one comes before the other"
SAME_STEPS = {
    "_matches: LtE to Lt: len(item[1]) <= free": "both ways to match find the same",
    "_sort: 0 plus one: 0": SORTED,
    "_sort: 1 plus one: 1": SORTED,
    "_sort: its condition negated: 1 if before(right[0], left[0]) else 0": SORTED,
}


def test_every_change_of_a_step_fails_a_named_case(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"STEPS": (STEPS, language._step_fails, language.STEP_CASES)}
    count, alive = _survivors(steps, tables, monkeypatch)  # type: ignore[arg-type]
    assert alive == set(SAME_STEPS)
    assert count > 60


def test_every_change_of_a_relation_fails_a_named_case(monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {
        "RELATION_KINDS": (RELATION_KINDS, language._relation_fails, language.RELATION_CASES),
        "COMBINATOR_KINDS": (
            COMBINATOR_KINDS,
            language._combinator_fails,
            language.COMBINATOR_CASES,
        ),
    }
    count, alive = _survivors(relations, tables, monkeypatch)  # type: ignore[arg-type]
    assert alive == set()
    assert count > 20
