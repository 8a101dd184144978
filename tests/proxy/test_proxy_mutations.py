"""Each rule is held by a named case: taken out of a copy of the decision, one of them fails."""

from __future__ import annotations

import ast
import copy
import inspect
import sys
import types
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from proxy import decision
from proxy.decision import Rule
from tests.proxy.cases import CASES, Case

SOURCE = inspect.getsource(decision)


@dataclass(frozen=True)
class Mutation:
    """One place that names a rule, and the decision's code without it."""

    name: str
    rule: str
    tree: ast.Module


class _Without(ast.NodeTransformer):
    """Takes one reference to a rule out, with the smallest step or choice that holds it."""

    def __init__(self, wanted: ast.AST) -> None:
        self.wanted = wanted

    def holds(self, node: ast.AST) -> bool:
        return any(inner is self.wanted for inner in ast.walk(node))

    def visit(self, node: ast.AST) -> ast.AST:
        if not self.holds(node):
            return node
        if isinstance(node, ast.IfExp) and not self.holds(node.test):
            inner = self.generic_visit(node)
            assert isinstance(inner, ast.IfExp)
            if inner is node and any(isinstance(each, ast.IfExp) for each in _within(node)):
                return node
            return node.orelse if self.holds(node.body) else node.body
        if isinstance(node, ast.For) and self.holds(node.iter):
            assert isinstance(node.iter, ast.Tuple)
            node.iter.elts = [row for row in node.iter.elts if not self.holds(row)]
            return node
        if isinstance(node, ast.stmt) and not any(
            isinstance(each, ast.stmt | ast.IfExp) and self.holds(each) for each in _within(node)
        ):
            return ast.copy_location(ast.Pass(), node)
        return self.generic_visit(node)


def _within(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield from ast.walk(child)


def _places(tree: ast.Module) -> Iterator[tuple[str, ast.Attribute]]:
    """Every reference to a rule in the functions, in the order of the text."""
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            for node in ast.walk(function):
                if (
                    isinstance(node, ast.Attribute)
                    and isinstance(node.value, ast.Name)
                    and node.value.id == "Rule"
                ):
                    yield function.name, node


def mutations() -> Iterator[Mutation]:
    count = sum(1 for _ in _places(ast.parse(SOURCE)))
    for number in range(count):
        tree = ast.parse(SOURCE)
        function, node = list(_places(tree))[number]
        name = f"{number}-{function}-{node.attr}"
        changed = _Without(node).visit(tree)
        assert isinstance(changed, ast.Module)
        yield Mutation(name, node.attr, ast.fix_missing_locations(changed))


MUTATIONS = tuple(mutations())


def compiled(tree: ast.Module) -> types.ModuleType:
    module = types.ModuleType("decision_changed")
    # Its own dataclasses look their module up.
    sys.modules[module.__name__] = module
    exec(compile(tree, "decision_changed.py", "exec"), module.__dict__)
    return module


def holds(module: types.ModuleType, case: Case) -> bool:
    """Does the case come out as it has to, by this module? Raising is not coming out."""
    kind = getattr(module, type(case.facts).__name__)
    members = {name: getattr(case.facts, name) for name in case.facts.__dataclass_fields__}
    try:
        found = module.decide(case.policy, kind(**members))
    except Exception:  # noqa: BLE001 - a mutant that raises does not hold its case
        return False
    return getattr(found, "rule", None) == case.expected


def test_every_case_comes_out_as_named() -> None:
    module = compiled(ast.parse(SOURCE))
    assert [case.name for case in CASES if not holds(module, case)] == []


def test_every_rule_of_a_decision_has_its_case_and_is_tried() -> None:
    tried = {mutation.rule for mutation in MUTATIONS}
    assert {case.expected.name for case in CASES if case.expected} == tried
    assert len(tried) >= 40
    # The rules that no decision gives are those of what happens to a connection.
    assert {rule.name for rule in Rule} - tried == {
        "NOTHING_ASKED", "HELLO_UNREADABLE", "HANDSHAKE", "HEAD_TOO_SLOW",
        "TOO_MANY_CONNECTIONS", "NOT_DECIDED", "UPSTREAM", "ANSWER_SWITCHED", "ANSWER_ENCODED",
        "ANSWER_SECRET", "FAULT",
    }  # fmt: skip


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_without_a_rule_a_named_case_fails(mutation: Mutation) -> None:
    assert ast.dump(mutation.tree) != ast.dump(ast.parse(SOURCE))
    module = compiled(copy.deepcopy(mutation.tree))
    assert [case.name for case in CASES if not holds(module, case)]
