"""The mechanisms, as the table that validates: what a declaration of that name may read and say.

A declaration's axes come from the sources that its body and its witness read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Axis = Literal["change", "actor", "world", "history"]

ALL_AXES: frozenset[Axis] = frozenset({"change", "actor", "world", "history"})

# The facts of one observation, under the names that every declaration reads them by.
FIXED_SOURCES: Mapping[str, Axis] = {
    "target.path": "change",
    "pre": "change",
    "post": "change",
    "state": "change",
    "changes": "change",
    "command": "change",
    "actor": "actor",
}
PAIRED_SOURCE = "state"
CHANGE_SET_SOURCE = "changes"

# The fixed sources whose value is text: what a scope can be held against.
SCOPE_SOURCES = ("target.path", "pre", "post", "command")

BINDING_AXES: Mapping[str, Axis] = {"file": "world", "sidecar": "world", "transcript": "history"}

RELATIONS = ("empty", "nonEmpty", "equal", "subset", "implies", "ordered", "unchanged")
COMBINATORS = ("union", "onlyIn", "intersect")


@dataclass(frozen=True, slots=True)
class Mechanism:
    """What a name admits. ``scope``: the source that its scope must be on, where it names one."""

    name: str
    axes: frozenset[Axis]
    relations: frozenset[str]
    scope: str | None = None
    witness: bool = False
    reserved: bool = False


def _row(
    name: str,
    axes: str,
    relations: str,
    *,
    scope: str | None = None,
    witness: bool = False,
    reserved: bool = False,
) -> Mechanism:
    admitted = frozenset(axis for axis in ALL_AXES if axes == "all" or axis in axes.split())
    names = frozenset(RELATIONS if relations == "all" else relations.split())
    return Mechanism(name, admitted, names, scope, witness, reserved)


MECHANISMS: Mapping[str, Mechanism] = {
    row.name: row
    for row in (
        _row("pairing", "world", "equal"),
        _row("fingerprint-sync", "world", "equal"),
        _row("companion", "change world", "implies"),
        _row("monotonic-order", "change world", "ordered"),
        _row("controlled-vocabulary", "change world", "subset"),
        _row("producer-owned", "actor", "empty nonEmpty"),
        _row("actor-scope", "actor", "empty nonEmpty"),
        _row("self-absolution-ban", "change", "unchanged empty"),
        _row("precedent", "history world", "nonEmpty"),
        _row("phase-order", "history", "ordered"),
        _row("turn-locality", "history", "nonEmpty"),
        _row("stated-ground", "history", "nonEmpty"),
        _row("naming", "change", "empty nonEmpty", scope="target.path"),
        _row("added-only", "change", "empty"),
        _row("one-way-marker", "change", "subset"),
        _row("forbidden-command", "change", "empty", scope="command"),
        _row("scoped-valve", "all", "all", witness=True),
        _row("delegated-scope", "", "", reserved=True),
    )
}
