"""One declaration over one world: ``judge = relate after extract``. Pure.

A scope reads its one source and no other. The first problem of supply ends a judgment. Results
of steps are kept in a ``Memo`` for as long as what went in is the same object, so that many
declarations over one session do not read one text many times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from recorder.disciplines.catalogue import FIXED_SOURCES
from recorder.disciplines.declaration import (
    Binding,
    Block,
    Declaration,
    Pipeline,
    Relate,
    Scope,
    Step,
)
from recorder.disciplines.relations import COMBINATOR_KINDS, Violators
from recorder.disciplines.steps import SupplyFaultError
from recorder.disciplines.values import ABSENT, NOTHING, UNPROVEN, Item, Items, text_of

FileReader = Callable[[str], Any]


def no_file(_: str) -> Any:
    """A surface on which no file can be read."""
    return ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One observation. A fact that is absent is ``ABSENT``; an empty text or null is supplied.

    A fact that is there and that nothing proves is ``UNPROVEN``: what reads it is not judged.

    ``subject`` is what a row says was judged: the path, or ``-``. ``file`` gives the text of a
    file as the surface sees it, ``ABSENT`` where there is none. ``sidecar`` is JSON text.
    """

    subject: str = "-"
    path: Any = ABSENT
    pre: Any = ABSENT
    post: Any = ABSENT
    changes: Any = ABSENT
    command: Any = ABSENT
    actor: Any = ABSENT
    file: FileReader = no_file
    sidecar: Any = ABSENT
    transcript: Any = ABSENT

    def fact(self, name: str) -> Any:
        """A fixed source's value. ``state`` is there on a modification alone."""
        match name:
            case "target.path":
                return self.path
            case "pre":
                return self.pre
            case "post":
                return self.post
            case "command":
                return self.command
            case "actor":
                return self.actor
            case "changes":
                return self.changes
            case _:
                if self.pre is ABSENT or self.post is ABSENT:
                    return ABSENT
                if self.pre is UNPROVEN or self.post is UNPROVEN:
                    return UNPROVEN
                return {"pre": self.pre, "post": self.post}

    def bound(self, binding: Binding) -> Any:
        match binding.kind:
            case "file":
                # Where the change touches that file, the change's own text is judged.
                if self.path == binding.path:
                    return self.post
                return self.file(binding.path)
            case "sidecar":
                return self.sidecar
            case _:
                return self.transcript


@dataclass(frozen=True, slots=True)
class Break:
    """A relation that failed: what it failed on, and the message about the first of them."""

    id: str
    violators: Violators
    message: str


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """``scope``: the world is not admitted. ``supply-pass``: ``source`` is absent, and that
    passes."""

    reason: Literal["scope", "supply-pass"]
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Unjudgeable:
    """A source is absent, or is not what a step can read."""

    source: str
    why: str


@dataclass(frozen=True, slots=True)
class NotObserved:
    """A source is there and this surface does not prove what it is."""

    source: str


@dataclass(frozen=True, slots=True)
class Passed:
    pass


@dataclass(frozen=True, slots=True)
class Broken:
    """``opened``: the declaration's own witness holds. None where it has none."""

    breaks: tuple[Break, ...]
    opened: bool | None


Judgment = NotApplicable | NotObserved | Unjudgeable | Passed | Broken

OUT_OF_SCOPE = NotApplicable("scope")
PASSED = Passed()


@dataclass(slots=True)
class Memo:
    """What was computed for one session. Nothing here changes a result."""

    world: World | None = None
    sources: dict[object, Items] = field(default_factory=dict)
    kept: dict[object, tuple[Any, Items]] = field(default_factory=dict)
    steps: dict[Step, tuple[Items, Items]] = field(default_factory=dict)
    scopes: dict[Scope, dict[str, bool]] = field(default_factory=dict)

    def enter(self, world: World) -> None:
        if self.world is not world:
            self.world = world
            self.sources = {}


class _SupplyEndError(Exception):
    def __init__(self, judgment: NotApplicable | NotObserved | Unjudgeable) -> None:
        super().__init__()
        self.judgment = judgment


def judge(declaration: Declaration, world: World, memo: Memo | None = None) -> Judgment:
    """Judge one world by one declaration."""
    memo = memo if memo is not None else Memo()
    scope = declaration.scope
    if scope is not None:
        value = _scoped(declaration, scope, world)
        if value is UNPROVEN:
            return NotObserved(scope.source)
        if not _admits(scope, value, memo):
            return OUT_OF_SCOPE
    memo.enter(world)
    evaluation = _Evaluation(declaration, declaration.body, world, memo)
    try:
        breaks = evaluation.breaks()
    except _SupplyEndError as end:
        return end.judgment
    except RecursionError:
        return Unjudgeable(min(declaration.reads), "is nested too deeply")
    if not breaks:
        return PASSED
    return Broken(breaks, _opened(declaration, world, memo))


def admits(declaration: Declaration, world: World, memo: Memo | None = None) -> bool:
    """Whether the scope admits a world; one that nothing proves to be outside is admitted."""
    scope = declaration.scope
    if scope is None:
        return True
    value = _scoped(declaration, scope, world)
    return value is UNPROVEN or _admits(scope, value, memo or Memo())


def scope_admits(scope: Scope | None, world: World) -> bool:
    """The same for a scope alone, of an entry that could not be resolved."""
    if scope is None:
        return True
    value = world.fact(scope.source) if scope.source in FIXED_SOURCES else ABSENT
    return isinstance(value, str) and scope.admits(value)


def _scoped(declaration: Declaration, scope: Scope, world: World) -> Any:
    """The one source that a scope reads."""
    source = scope.source
    if source == "target.path":
        return world.path
    binding = declaration.sources.get(source)
    return world.fact(source) if binding is None else world.bound(binding)


def _admits(scope: Scope, value: Any, memo: Memo) -> bool:
    if not isinstance(value, str):
        return False
    if not scope.include and not scope.exclude:
        return True
    known = memo.scopes.get(scope)
    if known is None:
        known = memo.scopes[scope] = {}
    admitted = known.get(value)
    if admitted is None:
        admitted = known[value] = scope.admits(value)
    return admitted


def _opened(declaration: Declaration, world: World, memo: Memo) -> bool | None:
    """Whether the witness holds. What it cannot be supplied with opens nothing."""
    if declaration.witness is None:
        return None
    evaluation = _Evaluation(declaration, declaration.witness, world, memo, lazily=True)
    try:
        return not evaluation.breaks()
    except (_SupplyEndError, RecursionError):
        return False


class _Evaluation:
    """The extractions of one block over one world, each at most once."""

    __slots__ = ("block", "declaration", "found", "lazily", "memo", "sides", "world")

    def __init__(
        self,
        declaration: Declaration,
        block: Block,
        world: World,
        memo: Memo,
        *,
        lazily: bool = False,
    ) -> None:
        self.declaration = declaration
        self.block = block
        self.world = world
        self.memo = memo
        self.lazily = lazily
        self.found: dict[str, Items] = {}
        self.sides: dict[str, tuple[Items, Items]] = {}

    def breaks(self) -> tuple[Break, ...]:
        """Every relation that fails, in declared order; the extractions go first, in theirs."""
        if not self.lazily:
            for name, pipeline in self.block.extract.items():
                self._extract(name, pipeline)
        failed: list[Break] = []
        for relate in self.block.relate:
            violators = self._violators(relate)
            if violators:
                failed.append(Break(relate.id, violators, message_of(relate, violators)))
        return tuple(failed)

    def _violators(self, relate: Relate) -> Violators:
        if relate.kind.paired:
            pipeline = self.block.extract[relate.left]
            self._extract(relate.left, pipeline)
            pre, post = self.sides[relate.left]
            return relate.kind.find(relate.left, pre, post, relate.strict)
        right = NOTHING if relate.right is None else self._items(relate.right)
        return relate.kind.find(relate.left, self._items(relate.left), right, relate.strict)

    def _items(self, name: str) -> Items:
        return self._extract(name, self.block.extract[name])

    def _extract(self, name: str, pipeline: Pipeline) -> Items:
        known = self.found.get(name)
        if known is not None:
            return known
        if pipeline.paired:
            self.found[name] = NOTHING
            if name not in self.sides:
                if not self._supplied(pipeline.root):
                    self.sides[name] = (NOTHING, NOTHING)
                    return NOTHING
                self.sides[name] = (self._side(pipeline, "pre"), self._side(pipeline, "post"))
            return NOTHING
        if pipeline.combination is None:
            items = self._run(pipeline, self._supplied(pipeline.root))
        else:
            combination = pipeline.combination
            left, right = self._items(combination.left), self._items(combination.right)
            items = self._run(pipeline, COMBINATOR_KINDS[combination.op](left, right))
        self.found[name] = items
        return items

    def _side(self, pipeline: Pipeline, side: Literal["pre", "post"]) -> Items:
        items: Items = (Item("0", self.world.fact(side)),)
        try:
            for step in pipeline.steps:
                items = step.run(items)
        except SupplyFaultError as fault:
            raise _SupplyEndError(Unjudgeable(pipeline.root, str(fault))) from fault
        return items

    def _run(self, pipeline: Pipeline, items: Items) -> Items:
        kept = self.memo.steps
        try:
            for step in pipeline.steps:
                if not items:
                    return NOTHING
                last = kept.get(step)
                if last is not None and last[0] is items:
                    items = last[1]
                else:
                    made = step.run(items)
                    kept[step] = (items, made)
                    items = made
        except SupplyFaultError as fault:
            raise _SupplyEndError(Unjudgeable(pipeline.root, str(fault))) from fault
        return items

    def _supplied(self, name: str) -> Items:
        """A source as one item, or as the declaration disposes of its absence."""
        binding = self.declaration.sources.get(name)
        key: object = name if binding is None else binding
        items = self.memo.sources.get(key)
        if items is None:
            world = self.world
            value = world.fact(name) if binding is None else world.bound(binding)
            if value is UNPROVEN:
                raise _SupplyEndError(NotObserved(name))
            if value is ABSENT:
                items = NOTHING
            else:
                last = self.memo.kept.get(key)
                items = last[1] if last is not None and last[0] is value else (Item("0", value),)
                self.memo.kept[key] = (value, items)
            self.memo.sources[key] = items
        if not items:
            match self.declaration.policy(name):
                case "error":
                    raise _SupplyEndError(Unjudgeable(name, "is absent"))
                case "pass":
                    raise _SupplyEndError(NotApplicable("supply-pass", name))
                case _:
                    pass
        return items


_HOLE = re.compile(r"\{(key|value|before)\}")


def message_of(relate: Relate, violators: Violators) -> str:
    """The message about the first violator, and how many more there are."""
    first = violators[0]
    template = relate.message
    if template is None:
        template = relate.left_message if first.side == "left" else relate.right_message
    holes = {"key": first.key, "value": first.value, "before": first.before}

    def fill(hole: re.Match[str]) -> str:
        value = holes[hole[1]]
        return hole[0] if value is ABSENT and hole[1] == "before" else text_of(value)

    text = _HOLE.sub(fill, template or "")
    return text if len(violators) == 1 else f"{text} (+{len(violators) - 1})"
