"""The relations, which return what violates them, and the combinators of two extractions.

None returned means that the relation holds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from recorder.disciplines.values import ABSENT, NOTHING, Items, before, identity

Side = Literal["left", "right"]


class Violator(NamedTuple):
    """An element that a relation failed on. ``before`` is its earlier value, of a change only."""

    key: str
    value: Any
    side: Side | None = None
    before: Any = ABSENT


Violators = tuple[Violator, ...]


@dataclass(frozen=True, slots=True)
class RelationKind:
    """A row of the table.

    ``names``: the arguments that name extractions, in the order ``find`` gets their items; a
    pair in ``of`` counts as two. ``paired``: it takes both sides of one extraction of ``state``.
    """

    op: str
    names: tuple[str, ...]
    find: Callable[[str, Items, Items, bool], Violators]
    pair_of: bool = False
    paired: bool = False
    strict: bool = False


def _empty(_: str, left: Items, _right: Items, _strict: bool) -> Violators:
    return tuple(Violator(key, value) for key, value in left)


def _non_empty(name: str, left: Items, _right: Items, _strict: bool) -> Violators:
    return () if left else (Violator(name, None),)


def _subset(_: str, left: Items, right: Items, _strict: bool) -> Violators:
    allowed = {identity(value) for _, value in right}
    return tuple(Violator(key, value) for key, value in left if identity(value) not in allowed)


def _equal(_: str, left: Items, right: Items, _strict: bool) -> Violators:
    lefts = {identity(value) for _, value in left}
    rights = {identity(value) for _, value in right}
    return (
        *(Violator(key, value, "left") for key, value in left if identity(value) not in rights),
        *(Violator(key, value, "right") for key, value in right if identity(value) not in lefts),
    )


def _implies(_: str, left: Items, right: Items, _strict: bool) -> Violators:
    there = {key for key, _ in right}
    return tuple(Violator(key, value) for key, value in left if key not in there)


def _ordered(_: str, left: Items, _right: Items, strict: bool) -> Violators:
    return tuple(
        Violator(*later)
        for earlier, later in itertools.pairwise(left)
        if before(later.value, earlier.value) or (strict and not before(earlier.value, later.value))
    )


def _unchanged(_: str, left: Items, right: Items, _strict: bool) -> Violators:
    was = dict(left)
    return tuple(
        Violator(key, value, None, was[key])
        for key, value in right
        if key in was and identity(was[key]) != identity(value)
    )


RELATION_KINDS: Mapping[str, RelationKind] = {
    kind.op: kind
    for kind in (
        RelationKind("empty", ("of",), _empty),
        RelationKind("nonEmpty", ("of",), _non_empty),
        RelationKind("equal", ("of",), _equal, pair_of=True),
        RelationKind("subset", ("of", "in"), _subset),
        RelationKind("implies", ("of", "requires"), _implies),
        RelationKind("ordered", ("of",), _ordered, strict=True),
        RelationKind("unchanged", ("of",), _unchanged, paired=True),
    )
}


def union(left: Items, right: Items) -> Items:
    """The left items, then the right ones whose key the left has not."""
    if not right:
        return left
    if not left:
        return right
    there = {key for key, _ in left}
    return (*left, *(item for item in right if item.key not in there))


def intersect(left: Items, right: Items) -> Items:
    """The left items whose key the right has too."""
    there = {key for key, _ in right}
    return tuple(item for item in left if item.key in there)


def only_in(left: Items, right: Items) -> Items:
    """The left items whose key the right has not."""
    if not left:
        return NOTHING
    there = {key for key, _ in right}
    return tuple(item for item in left if item.key not in there)


COMBINATOR_KINDS: Mapping[str, Callable[[Items, Items], Items]] = {
    "union": union,
    "intersect": intersect,
    "onlyIn": only_in,
}
