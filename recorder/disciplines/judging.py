"""One declaration over one world: ``judge = relate after extract``. Pure.

A scope reads its one source and no other. The first problem of supply ends a judgment. Results
of steps are kept in a ``Memo`` for as long as what went in is the same object, so that many
declarations over one session do not read one text many times.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import is_
from typing import Any, Literal

from recorder.disciplines.catalogue import FIXED_SOURCES
from recorder.disciplines.declaration import (
    Binding,
    Block,
    Declaration,
    Policy,
    Relate,
    Scope,
    Step,
)
from recorder.disciplines.patterns import PatternTimeError
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

# Each costs its bound on time once, so that one call, and one session, has a bound too.
OUTLASTED = 8


@dataclass(slots=True)
class Memo:
    """What was computed for one session. Nothing here changes a result.

    ``outlasted`` are the scopes and the blocks on which a pattern ran out of its time: none is
    tried again in that session, which would else be the time of it for every call.

    ``kept`` and ``steps`` hold the last input of each source and step with what came of it, and
    ``bodies`` the last extractions of each block with the breaks that they made.
    """

    world: World | None = None
    sources: dict[str, Items] = field(default_factory=dict)
    kept: dict[str, tuple[Any, Items]] = field(default_factory=dict)
    steps: dict[Step, tuple[Items, Items]] = field(default_factory=dict)
    scopes: dict[Scope, dict[str, bool]] = field(default_factory=dict)
    flat: dict[Block, _Flat] = field(default_factory=dict)
    bodies: dict[Block, tuple[list[Any], tuple[Break, ...]]] = field(default_factory=dict)
    candidates: dict[object, Any] = field(default_factory=dict)
    outlasted: dict[Scope | Block, Unjudgeable] = field(default_factory=dict)

    @property
    def exhausted(self) -> bool:
        """Whether so many patterns ran out of their time that no other may."""
        return len(self.outlasted) >= OUTLASTED

    def enter(self, world: World) -> None:
        if self.world is not world:
            self.world = world
            self.sources = {}


@dataclass(frozen=True, slots=True)
class _Operation:
    """A pipeline with its references resolved to the places of earlier ones."""

    source: str | None
    key: str
    binding: Binding | None
    policy: Policy
    combine: Callable[[Items, Items], Items] | None
    left: int
    right: int
    steps: tuple[Step, ...]
    root: str
    paired: bool


@dataclass(frozen=True, slots=True)
class _Flat:
    """A block in the order of evaluation, and its relations with the places they read."""

    operations: tuple[_Operation, ...]
    relates: tuple[tuple[Relate, int, int | None], ...]


def _flattened(declaration: Declaration, block: Block, *, lazily: bool) -> _Flat:
    """The extractions in declared order, each after what it refers to; or only what is read."""
    places: dict[str, int] = {}
    operations: list[_Operation] = []

    def add(name: str) -> int:
        if name in places:
            return places[name]
        pipeline = block.extract[name]
        left = right = 0
        combine = None
        if pipeline.combination is not None:
            left, right = add(pipeline.combination.left), add(pipeline.combination.right)
            combine = COMBINATOR_KINDS[pipeline.combination.op]
        source = pipeline.source
        binding = None if source is None else declaration.sources.get(source)
        operations.append(
            _Operation(
                source,
                # Two declarations may bind one name to two things, and two names to one.
                f"{binding.kind} {binding.path}" if binding is not None else source or "",
                binding,
                "error" if source is None else declaration.policy(source),
                combine,
                left,
                right,
                pipeline.steps,
                pipeline.root,
                pipeline.paired,
            )
        )
        places[name] = len(operations) - 1
        return places[name]

    if not lazily:
        for name in block.extract:
            add(name)
    relates = tuple(
        (relate, add(relate.left), None if relate.right is None else add(relate.right))
        for relate in block.relate
    )
    return _Flat(tuple(operations), relates)


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
        try:
            if not _admits(scope, value, memo):
                return OUT_OF_SCOPE
        except _SupplyEndError as end:
            return end.judgment
    try:
        breaks = _breaks(declaration, declaration.body, world, memo, lazily=False)
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
    try:
        return value is UNPROVEN or _admits(scope, value, memo or Memo())
    except _SupplyEndError:
        return True


def scope_admits(scope: Scope | None, world: World) -> bool:
    """The same for a scope alone, of an entry that could not be resolved."""
    if scope is None:
        return True
    value = world.fact(scope.source) if scope.source in FIXED_SOURCES else ABSENT
    try:
        return isinstance(value, str) and scope.admits(value)
    except PatternTimeError:
        # Nothing proves it to be outside.
        return True


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
        if scope in memo.outlasted:
            raise _SupplyEndError(memo.outlasted[scope])
        if memo.exhausted and not scope.is_free(value):
            raise _SupplyEndError(_exhausted(scope.source))
        try:
            admitted = known[value] = scope.admits(value)
        except PatternTimeError as error:
            memo.outlasted[scope] = Unjudgeable(scope.source, str(error))
            raise _SupplyEndError(memo.outlasted[scope]) from error
    return admitted


def _exhausted(source: str) -> Unjudgeable:
    return Unjudgeable(
        source, f"was not read, after {OUTLASTED} patterns that ran out of their time"
    )


def _opened(declaration: Declaration, world: World, memo: Memo) -> bool | None:
    """Whether the witness holds. What it cannot be supplied with opens nothing."""
    if declaration.witness is None:
        return None
    try:
        return not _breaks(declaration, declaration.witness, world, memo, lazily=True)
    except (_SupplyEndError, RecursionError):
        return False


def _breaks(
    declaration: Declaration, block: Block, world: World, memo: Memo, *, lazily: bool
) -> tuple[Break, ...]:
    """Every relation that fails, in declared order; the extractions go first, in theirs."""
    if memo.world is not world:
        memo.enter(world)
    flat = memo.flat.get(block)
    if flat is None:
        flat = memo.flat[block] = _flattened(declaration, block, lazily=lazily)
    if memo.outlasted:
        if block in memo.outlasted:
            raise _SupplyEndError(memo.outlasted[block])
        if memo.exhausted:
            raise _SupplyEndError(_exhausted(flat.operations[0].root))
    outputs: list[Any] = []
    for operation in flat.operations:
        if operation.source is None:
            combine = operation.combine
            if combine is None:
                raise ValueError("an extraction starts with a source or a combinator")
            items = combine(outputs[operation.left], outputs[operation.right])
        else:
            items = memo.sources.get(operation.key, NOTHING) or _supplied(operation, world, memo)
        try:
            if operation.paired:
                outputs.append(_sides(operation, world) if items else (NOTHING, NOTHING))
            elif operation.steps and items:
                outputs.append(_run(operation, items, memo.steps))
            else:
                outputs.append(items)
        except PatternTimeError as error:
            memo.outlasted[block] = Unjudgeable(operation.root, str(error))
            raise _SupplyEndError(memo.outlasted[block]) from error
    last = memo.bodies.get(block)
    if last is not None and all(map(is_, last[0], outputs)):
        return last[1]
    failed: list[Break] = []
    for relate, left, right in flat.relates:
        if relate.kind.paired:
            pre, post = outputs[left]
            violators = relate.kind.find(relate.left, pre, post, relate.strict)
        else:
            other = NOTHING if right is None else outputs[right]
            violators = relate.kind.find(relate.left, outputs[left], other, relate.strict)
        if violators:
            failed.append(Break(relate.id, violators, message_of(relate, violators)))
    breaks = tuple(failed)
    memo.bodies[block] = (outputs, breaks)
    return breaks


def _run(operation: _Operation, items: Items, kept: dict[Step, tuple[Items, Items]]) -> Items:
    try:
        for step in operation.steps:
            last = kept.get(step)
            if last is not None and last[0] is items:
                items = last[1]
            else:
                made = step.run(items)
                kept[step] = (items, made)
                items = made
            if not items:
                return NOTHING
    except SupplyFaultError as fault:
        raise _SupplyEndError(Unjudgeable(operation.root, str(fault))) from fault
    return items


def _sides(operation: _Operation, world: World) -> tuple[Items, Items]:
    """Both sides of the paired source, each through every step."""
    sides: list[Items] = []
    try:
        for value in (world.pre, world.post):
            items: Items = (Item("0", value),)
            for step in operation.steps:
                items = step.run(items)
            sides.append(items)
    except SupplyFaultError as fault:
        raise _SupplyEndError(Unjudgeable(operation.root, str(fault))) from fault
    return sides[0], sides[1]


def _supplied(operation: _Operation, world: World, memo: Memo) -> Items:
    """A source as one item, or as the declaration disposes of its absence."""
    name = operation.source or ""
    key = operation.key
    binding = operation.binding
    value = world.fact(name) if binding is None else world.bound(binding)
    if value is UNPROVEN:
        raise _SupplyEndError(NotObserved(name))
    if value is ABSENT:
        match operation.policy:
            case "error":
                raise _SupplyEndError(Unjudgeable(name, "is absent"))
            case "pass":
                raise _SupplyEndError(NotApplicable("supply-pass", name))
            case _:
                return NOTHING
    last = memo.kept.get(key)
    items = last[1] if last is not None and last[0] is value else (Item("0", value),)
    memo.kept[key] = (value, items)
    memo.sources[key] = items
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
