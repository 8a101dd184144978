"""Reading a file of disciplines. Every mistake has its file, line, column and what is admitted.

Two kinds of mistake: a file that is not of the schema is not loaded at all; an entry whose block
has the shape and cannot be resolved (a step that is not in the table, an argument that is not its,
a pattern that cannot be meant) is kept as one that skips, where the caller allows that.
Plain scalars are read by YAML 1.2's core schema, so ``no`` is text.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from recorder.disciplines.catalogue import (
    BINDING_AXES,
    COMBINATORS,
    FIXED_SOURCES,
    MECHANISMS,
    PAIRED_SOURCE,
    RELATIONS,
    SCOPE_SOURCES,
    Mechanism,
)
from recorder.disciplines.declaration import (
    Binding,
    BindingKind,
    Block,
    Combination,
    Declaration,
    Disciplines,
    Draft,
    Entry,
    Level,
    Pipeline,
    Place,
    Policy,
    Relate,
    Scope,
    Step,
)
from recorder.disciplines.patterns import Pattern, PatternError, compile_pattern
from recorder.disciplines.relations import RELATION_KINDS
from recorder.disciplines.steps import (
    CONDITION_OPERATORS,
    STEPS,
    Argument,
    Condition,
    StepKind,
)
from recorder.plan.nodes import NodeError, compose
from recorder.refusal import ExitCode, Refusal

FILE_KEYS = ("disciplines", "protectedPaths")
ENTRY_KEYS = ("id", "why", "enforce", "declare")
DRAFT_KEYS = ("id", "why", "draft")
BLOCK_KEYS = ("mechanism", "scope", "sources", "supply", "extract", "relate", "witness")
SCOPE_KEYS = ("source", "include", "exclude", "excludeIgnoreCase")
RELATE_KEYS = ("id", "relation", "message", "messageBySide")
BINDING_KINDS = tuple(BINDING_AXES)
LEVELS = ("block", "advise")
POLICIES = ("error", "pass", "empty")
MAXIMUM_DEPTH = 40

_STANDARD = "tag:yaml.org,2002:"
_INTEGER = re.compile(r"[-+]?[0-9]+")
_OCTAL = re.compile(r"0o[0-7]+")
_HEXADECIMAL = re.compile(r"0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_CLIMBING = re.compile(r"(^|/)\.\.(/|$)")


class _FaultError(Exception):
    """One mistake. ``unresolved``: its block has the shape and its words are not known."""

    def __init__(self, place: Place, reason: str, *, unresolved: bool = False) -> None:
        super().__init__(f"{place}: {reason}")
        self.unresolved = unresolved


def load_disciplines(content: bytes, name: str, *, allow_unresolved: bool = False) -> Disciplines:
    """Load a file: ``disciplines:`` with entries, or one declaration under its own name.

    Refusal 2 with a line for each entry that is wrong. With ``allow_unresolved`` an entry that
    has the shape and cannot be resolved is kept with its ``fault``, and skips.
    """
    digest = "sha256:" + hashlib.sha256(content).hexdigest()
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.USAGE, f"{name}: is not UTF-8 (byte {error.start + 1})") from error
    try:
        root = compose(text)
    except NodeError as error:
        raise Refusal(ExitCode.USAGE, f"{name}:{error}") from error
    except RecursionError as error:
        raise Refusal(ExitCode.USAGE, f"{name}:1:1: is nested too deeply") from error
    loader = _Loader(name)
    try:
        entries, drafts, faults, protected = loader.file(root)
    except _FaultError as fault:
        raise Refusal(ExitCode.USAGE, str(fault)) from fault
    faults += [] if allow_unresolved else [e.fault for e in entries if e.fault is not None]
    if faults:
        raise Refusal(ExitCode.USAGE, *faults)
    return Disciplines(name, digest, tuple(entries), tuple(drafts), protected)


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none, nothing is declared"


@dataclass(frozen=True, slots=True)
class _Member:
    key: Node
    value: Node


@dataclass(slots=True)
class _Block:
    """What is known of a declaration while its parts are read."""

    sources: Mapping[str, Binding]
    names: Mapping[str, _Member]
    pipelines: dict[str, Pipeline] = field(default_factory=dict)
    reads: dict[str, None] = field(default_factory=dict)
    outer: Mapping[str, Pipeline] = field(default_factory=dict)
    outer_names: tuple[str, ...] = ()


class _Loader:
    def __init__(self, name: str) -> None:
        self.name = name
        self._steps: dict[tuple[object, ...], Step] = {}

    # Nodes -----------------------------------------------------------------------------------

    def place(self, node: Node | None) -> Place:
        if node is None:
            return Place(self.name, 1, 1)
        return Place(self.name, node.start_mark.line + 1, node.start_mark.column + 1)

    def fault(self, node: Node | None, reason: str, *, unresolved: bool = False) -> _FaultError:
        return _FaultError(self.place(node), reason, unresolved=unresolved)

    def value(self, node: Node, depth: int = 0) -> Any:
        """A node as a JSON value. Refuses what JSON has not: a tag, a number without a value."""
        if depth > MAXIMUM_DEPTH:
            raise self.fault(node, f"is nested too deeply; admitted here: {MAXIMUM_DEPTH} levels")
        if isinstance(node, SequenceNode):
            return [self.value(item, depth + 1) for item in node.value]
        if isinstance(node, MappingNode):
            return {
                key: self.value(member.value, depth + 1)
                for key, member in self.mapping(node, "a mapping").items()
            }
        return self.scalar(node)

    def scalar(self, node: Node) -> str | int | float | bool | None:
        if not isinstance(node, ScalarNode):
            raise self.fault(node, "is no single value; admitted here: a single value")
        if not node.tag.startswith(_STANDARD):
            raise self.fault(node, f"carries the tag {node.tag}; admitted here: no tag")
        text = str(node.value)
        if node.style:
            # JSON writes a character beyond the first plane as the escapes of its two halves.
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
        if text in ("", "~", "null", "Null", "NULL"):
            return None
        if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
            return text.lower() == "true"
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) < 17 else float(text)
        if _OCTAL.fullmatch(text) or _HEXADECIMAL.fullmatch(text):
            return int(text, 0)
        return float(text) if _FLOAT.fullmatch(text) else text

    def text(self, node: Node, what: str, *, empty: bool = False) -> str:
        value = self.scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, str):
            raise self.fault(node, f"{what} is not text; admitted here: a string")
        if not value and not empty:
            raise self.fault(node, f"{what} is empty; admitted here: a string of one or more")
        return value

    def one_of(self, node: Node, what: str, admitted: Iterable[str]) -> str:
        listed = tuple(admitted)
        value = self.scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, str) or value not in listed:
            said = repr(value) if isinstance(node, ScalarNode) else "no single value"
            raise self.fault(node, f"{what} is {said}; admitted here: {_listed(listed)}")
        return value

    def flag(self, node: Node, what: str, *, unresolved: bool = False) -> bool:
        value = self.scalar(node) if isinstance(node, ScalarNode) else None
        if not isinstance(value, bool):
            raise self.fault(
                node,
                f"{what} is not true or false; admitted here: true, false",
                unresolved=unresolved,
            )
        return value

    def sequence(self, node: Node, what: str) -> list[Node]:
        if not isinstance(node, SequenceNode):
            raise self.fault(node, f"{what} is not a sequence; admitted here: a sequence")
        return list(node.value)

    def mapping(self, node: Node | None, what: str) -> dict[str, _Member]:
        if not isinstance(node, MappingNode):
            raise self.fault(node, f"{what} is not a mapping; admitted here: a mapping")
        found: dict[str, _Member] = {}
        for key, value in node.value:
            name = self.scalar(key) if isinstance(key, ScalarNode) else None
            if not isinstance(name, str):
                raise self.fault(key, f"a key of {what} is not text; admitted here: a string")
            if name in found:
                raise self.fault(key, f"{what} has the key `{name}` twice; admitted here: once")
            found[name] = _Member(key, value)
        return found

    def closed(
        self,
        node: Node,
        what: str,
        admitted: Iterable[str],
        required: Iterable[str] = (),
    ) -> dict[str, _Member]:
        """A mapping with these keys and no other."""
        listed = tuple(admitted)
        members = self.mapping(node, what)
        for name, member in members.items():
            if name not in listed:
                raise self.fault(
                    member.key, f"{what} has no key `{name}`; admitted here: {_listed(listed)}"
                )
        for name in required:
            if name not in members:
                raise self.fault(
                    node, f"{what} lacks the key `{name}`; admitted here: {_listed(listed)}"
                )
        return members

    # The file --------------------------------------------------------------------------------

    def file(
        self, root: Node | None
    ) -> tuple[list[Entry], list[Draft], list[str], tuple[str, ...]]:
        members = self.mapping(root, "the file")
        if "discipline" in members and root is not None:
            return [self._lone_declaration(root)], [], [], ()
        members = self.closed(cast(Node, root), "the file", FILE_KEYS, ("disciplines",))
        protected: tuple[str, ...] = ()
        if "protectedPaths" in members:
            protected = tuple(
                self.text(each, "an entry of `protectedPaths`")
                for each in self.sequence(members["protectedPaths"].value, "`protectedPaths`")
            )
        entries: list[Entry] = []
        drafts: list[Draft] = []
        faults: list[str] = []
        seen: dict[str, Place] = {}
        for node in self.sequence(members["disciplines"].value, "`disciplines`"):
            try:
                entry = self._entry(node)
                if entry.id in seen:
                    raise self.fault(
                        node,
                        f"the id `{entry.id}` is the one of {seen[entry.id]} too; admitted here: "
                        "an id of its own, it labels every row",
                    )
                seen[entry.id] = entry.place
                if isinstance(entry, Draft):
                    drafts.append(entry)
                else:
                    entries.append(entry)
            except _FaultError as fault:
                faults.append(str(fault))
        return entries, drafts, faults, protected

    def _lone_declaration(self, root: Node) -> Entry:
        """A declaration as the published schema has it, its id under ``discipline``."""
        members = self.closed(
            root,
            "the declaration",
            ("discipline", *BLOCK_KEYS),
            ("discipline", "mechanism", "extract", "relate"),
        )
        identifier = self.text(members["discipline"].value, "`discipline`")
        del members["discipline"]
        return self._judged(root, members, identifier, None, None)

    def _entry(self, node: Node) -> Entry | Draft:
        members = self.mapping(node, "an entry")
        if "draft" in members:
            self.closed(node, "a draft", DRAFT_KEYS, DRAFT_KEYS)
            if self.scalar(members["draft"].value) is not True:
                raise self.fault(members["draft"].value, "`draft` is not true; admitted here: true")
            return Draft(
                self.text(members["id"].value, "`id`"),
                self.text(members["why"].value, "`why`"),
                self.place(node),
            )
        members = self.closed(node, "an entry", ENTRY_KEYS, ("id", "declare"))
        identifier = self.text(members["id"].value, "`id`")
        why = self.text(members["why"].value, "`why`") if "why" in members else None
        level = None
        if "enforce" in members:
            level = cast(Level, self.one_of(members["enforce"].value, "`enforce`", LEVELS))
        declare = members["declare"].value
        block = self.closed(
            declare, f"`declare` of {identifier}", BLOCK_KEYS, ("mechanism", "extract", "relate")
        )
        return self._judged(node, block, identifier, why, level)

    def _judged(
        self,
        node: Node,
        block: dict[str, _Member],
        identifier: str,
        why: str | None,
        level: Level | None,
    ) -> Entry:
        scope: list[Scope] = []
        try:
            declaration = self._declaration(block, scope)
        except _FaultError as fault:
            if not fault.unresolved:
                raise
            return Entry(
                identifier,
                why,
                level,
                None,
                self.place(node),
                scope[0] if scope else None,
                str(fault),
            )
        return Entry(identifier, why, level, declaration, self.place(node), declaration.scope)

    # One declaration -------------------------------------------------------------------------

    def _declaration(self, block: dict[str, _Member], understood: list[Scope]) -> Declaration:
        mechanism = self._mechanism(block["mechanism"].value)
        sources = self._sources(block["sources"].value) if "sources" in block else {}
        supply = self._supply(block["supply"].value, sources) if "supply" in block else {}
        scope = self._scope(block["scope"].value, sources) if "scope" in block else None
        if scope is not None:
            understood.append(scope)
        unresolved: list[_FaultError] = []
        body, reads = self._block(
            block["extract"].value, block["relate"].value, sources, {}, (), unresolved
        )
        witness, witness_reads = None, frozenset[str]()
        if "witness" in block:
            members = self.closed(
                block["witness"].value, "`witness`", ("extract", "relate"), ("relate",)
            )
            extract = members["extract"].value if "extract" in members else None
            witness, witness_reads = self._block(
                extract,
                members["relate"].value,
                sources,
                body.extract,
                tuple(self.mapping(block["extract"].value, "`extract`")),
                unresolved,
            )
        if unresolved:
            raise unresolved[0]
        self._held_to(mechanism, block, scope, sources, body, reads | witness_reads, witness)
        return Declaration(mechanism, scope, sources, supply, body, witness, reads, witness_reads)

    def _mechanism(self, node: Node) -> Mechanism:
        admitted = [name for name, row in MECHANISMS.items() if not row.reserved]
        return MECHANISMS[self.one_of(node, "`mechanism`", admitted)]

    def _held_to(
        self,
        mechanism: Mechanism,
        block: dict[str, _Member],
        scope: Scope | None,
        sources: Mapping[str, Binding],
        body: Block,
        reads: frozenset[str],
        witness: Block | None,
    ) -> None:
        name = mechanism.name
        for source in sorted(reads):
            axis = FIXED_SOURCES.get(source) or BINDING_AXES[sources[source].kind]
            if axis not in mechanism.axes:
                raise self.fault(
                    block["mechanism"].value,
                    f"`{name}` does not read the axis {axis}, which `{source}` is of; admitted "
                    f"here: sources of {_listed(sorted(mechanism.axes))}",
                )
        for node, relate in zip(
            self.sequence(block["relate"].value, "`relate`"), body.relate, strict=True
        ):
            if relate.kind.op not in mechanism.relations:
                raise self.fault(
                    node,
                    f"`{name}` does not relate by `{relate.kind.op}`; admitted here: "
                    f"{_listed(op for op in RELATIONS if op in mechanism.relations)}",
                )
        if mechanism.scope is not None and (scope is None or scope.source != mechanism.scope):
            where = block["scope"].value if "scope" in block else block["mechanism"].value
            raise self.fault(
                where, f"`{name}` is scoped on another source; admitted here: {mechanism.scope}"
            )
        if mechanism.witness and witness is None:
            raise self.fault(
                block["mechanism"].value, f"`{name}` has no witness; admitted here: one `witness`"
            )

    def _sources(self, node: Node) -> dict[str, Binding]:
        found: dict[str, Binding] = {}
        for name, member in self.mapping(node, "`sources`").items():
            if name in FIXED_SOURCES or not name:
                raise self.fault(
                    member.key,
                    f"`{name}` cannot be bound; admitted here: any name but "
                    f"{_listed(FIXED_SOURCES)}",
                )
            kinds = self.closed(member.value, f"the source `{name}`", BINDING_KINDS)
            if len(kinds) != 1:
                raise self.fault(
                    member.value,
                    f"the source `{name}` has {len(kinds)} kinds; admitted here: one of "
                    f"{_listed(BINDING_KINDS)}",
                )
            ((kind, stated),) = kinds.items()
            found[name] = Binding(cast(BindingKind, kind), self._bound(kind, stated.value))
        return found

    def _bound(self, kind: str, node: Node) -> str:
        if kind != "file":
            if not isinstance(node, ScalarNode) or self.scalar(node) is not True:
                raise self.fault(node, f"`{kind}` is not true; admitted here: true")
            return ""
        path = self.text(node, "`file`")
        if path.startswith("/") or _CLIMBING.search(path):
            raise self.fault(
                node,
                f"{path!r} leaves the tree; admitted here: a path relative to its root, "
                "without `..`",
            )
        return path

    def _supply(self, node: Node, sources: Mapping[str, Binding]) -> dict[str, Policy]:
        found: dict[str, Policy] = {}
        for name, member in self.mapping(node, "`supply`").items():
            admitted = (*FIXED_SOURCES, *sources)
            if name not in admitted:
                raise self.fault(
                    member.key,
                    f"`supply` names no source `{name}`; admitted here: {_listed(admitted)}",
                )
            policies = POLICIES[:2] if name == PAIRED_SOURCE else POLICIES
            found[name] = cast(
                Policy, self.one_of(member.value, f"the supply of `{name}`", policies)
            )
        return found

    def _scope(self, node: Node, sources: Mapping[str, Binding]) -> Scope:
        members = self.closed(node, "`scope`", SCOPE_KEYS, ("source",))
        files = [name for name, binding in sources.items() if binding.kind == "file"]
        source = self.one_of(members["source"].value, "`source`", (*SCOPE_SOURCES, *files))
        ignore_case = "excludeIgnoreCase" in members and self.flag(
            members["excludeIgnoreCase"].value, "`excludeIgnoreCase`"
        )
        return Scope(
            source,
            self._patterns(members.get("include"), "`include`", False),
            self._patterns(members.get("exclude"), "`exclude`", ignore_case),
        )

    def _patterns(
        self, member: _Member | None, what: str, ignore_case: bool
    ) -> tuple[Pattern, ...]:
        if member is None:
            return ()
        return tuple(
            self._pattern(node, self.text(node, f"a pattern of {what}", empty=True), ignore_case)
            for node in self.sequence(member.value, what)
        )

    def _pattern(
        self, node: Node, source: str, ignore_case: bool, captures: bool = False
    ) -> Pattern:
        try:
            return compile_pattern(source, ignore_case, captures)
        except PatternError as error:
            raise self.fault(
                node,
                f"the pattern {source!r} {error}; admitted here: a regular expression of "
                "JavaScript that means the same here",
                unresolved=True,
            ) from error

    # Blocks and pipelines --------------------------------------------------------------------

    def _block(
        self,
        extract: Node | None,
        relate: Node,
        sources: Mapping[str, Binding],
        outer: Mapping[str, Pipeline],
        outer_names: tuple[str, ...],
        unresolved: list[_FaultError],
    ) -> tuple[Block, frozenset[str]]:
        names = {} if extract is None else self.mapping(extract, "`extract`")
        for name, member in names.items():
            if not name:
                raise self.fault(member.key, "an extraction has no name; admitted here: a name")
        state = _Block(sources, names, outer=outer, outer_names=outer_names)
        for name in names:
            try:
                self._pipeline(state, name, ())
            except _FaultError as fault:
                if not fault.unresolved:
                    raise
                unresolved.append(fault)
        known = {
            **outer,
            **{name: state.pipelines[name] for name in names if name in state.pipelines},
        }
        relates = self._relates(relate, known, (*outer_names, *names))
        return Block(known, relates), frozenset(state.reads)

    def _pipeline(self, state: _Block, name: str, above: tuple[str, ...]) -> Pipeline:
        if name in state.pipelines:
            return state.pipelines[name]
        member = state.names[name]
        if name in above:
            raise self.fault(
                member.key,
                f"the extraction `{name}` refers to itself through {_listed(above)}; admitted "
                "here: references without a circle",
            )
        nodes = self.sequence(member.value, f"the extraction `{name}`")
        if not nodes:
            raise self.fault(
                member.value,
                f"the extraction `{name}` has no step; admitted here: source, "
                f"{_listed(COMBINATORS)} first",
            )
        for node in nodes[1:]:
            self._require_unary(node)
        pipeline = self._start(state, name, nodes[0], above)
        parent: tuple[object, ...] = self._parent(state, pipeline)
        steps = []
        for node in nodes[1:]:
            step, parent = self._step(node, parent)
            steps.append(step)
        pipeline = Pipeline(
            name,
            pipeline.source,
            pipeline.combination,
            tuple(steps),
            pipeline.root,
            pipeline.paired,
        )
        state.pipelines[name] = pipeline
        return pipeline

    def _parent(self, state: _Block, pipeline: Pipeline) -> tuple[object, ...]:
        """What makes the first step of two pipelines the same one."""
        if pipeline.source is None:
            return (object(),)
        binding = state.sources.get(pipeline.source)
        return (pipeline.source,) if binding is None else (binding.kind, binding.path)

    def _operator(self, node: Node) -> tuple[str, dict[str, _Member]]:
        members = self.mapping(node, "a step")
        if "op" not in members:
            raise self.fault(node, f"a step lacks the key `op`; admitted here: {self._ops()}")
        return self.text(members["op"].value, "`op`"), members

    @staticmethod
    def _ops() -> str:
        return _listed(("source", *COMBINATORS, *STEPS))

    def _require_unary(self, node: Node) -> None:
        op, members = self._operator(node)
        if op in COMBINATORS or op == "source":
            raise self.fault(
                members["op"].value,
                f"`{op}` stands after the first step; admitted here: {_listed(STEPS)}",
                unresolved=op == "source",
            )
        self._require_no_names(op, members)

    def _require_no_names(self, op: str, members: dict[str, _Member]) -> None:
        """The schema's rule: a step that names two extractions is a combinator by its shape."""
        if "notIn" in members:
            raise self.fault(
                members["notIn"].key, f"`{op}` has no key `notIn`; admitted here: onlyIn has it"
            )
        if "of" in members and isinstance(members["of"].value, SequenceNode):
            raise self.fault(
                members["of"].value,
                f"`{op}` takes no two extractions; admitted here: union, intersect",
            )

    def _start(self, state: _Block, name: str, node: Node, above: tuple[str, ...]) -> Pipeline:
        op, members = self._operator(node)
        if op == "source":
            self._require_no_names(op, members)
            return self._source(state, name, node)
        if op in COMBINATORS:
            return self._combination(state, name, op, node, (*above, name))
        self._require_no_names(op, members)
        raise self.fault(
            members["op"].value,
            f"an extraction starts with `{op}`; admitted here: source, {_listed(COMBINATORS)}",
            unresolved=True,
        )

    def _source(self, state: _Block, name: str, node: Node) -> Pipeline:
        try:
            members = self.closed(node, "`source`", ("op", "of"), ("op", "of"))
            admitted = (*FIXED_SOURCES, *state.sources)
            source = self.one_of(members["of"].value, "`of`", admitted)
        except _FaultError as fault:
            fault.unresolved = True
            raise
        state.reads[source] = None
        return Pipeline(name, source, None, (), source, source == PAIRED_SOURCE)

    def _combination(
        self, state: _Block, name: str, op: str, node: Node, above: tuple[str, ...]
    ) -> Pipeline:
        if op == "onlyIn":
            members = self.closed(node, "`onlyIn`", ("op", "of", "notIn"), ("op", "of", "notIn"))
            left, right = members["of"].value, members["notIn"].value
        else:
            members = self.closed(node, f"`{op}`", ("op", "of"), ("op", "of"))
            left, right = self._two(members["of"].value, f"`of` of `{op}`")
        first, second = (self._referred(state, each, above) for each in (left, right))
        for each, pipeline in ((left, first), (right, second)):
            if pipeline.paired:
                raise self.fault(
                    each,
                    f"`{pipeline.name}` has two sides; admitted here: an extraction of "
                    "another source than state",
                )
        combination = Combination(op, first.name, second.name)
        return Pipeline(name, None, combination, (), first.root, False)

    def _two(self, node: Node, what: str) -> tuple[Node, Node]:
        nodes = self.sequence(node, what)
        if len(nodes) != 2:
            raise self.fault(node, f"{what} names {len(nodes)} extractions; admitted here: two")
        if self.text(nodes[0], what) == self.text(nodes[1], what):
            raise self.fault(nodes[1], f"{what} names one extraction twice; admitted here: two")
        return nodes[0], nodes[1]

    def _referred(self, state: _Block, node: Node, above: tuple[str, ...]) -> Pipeline:
        name = self.one_of(node, "an extraction's name", (*state.names, *state.outer_names))
        if name in state.names:
            return self._pipeline(state, name, above)
        if name not in state.outer:
            raise self.fault(node, f"`{name}` could not be resolved", unresolved=True)
        return state.outer[name]

    # Steps -----------------------------------------------------------------------------------

    def _step(self, node: Node, parent: tuple[object, ...]) -> tuple[Step, tuple[object, ...]]:
        op, members = self._operator(node)
        kind = STEPS.get(op)
        if kind is None:
            raise self.fault(
                members["op"].value,
                f"no step is named `{op}`; admitted here: {_listed(STEPS)}",
                unresolved=True,
            )
        arguments = self._arguments(kind, node, members)
        signature = (*parent, op, repr(sorted(arguments.items(), key=lambda pair: pair[0])))
        step = self._steps.get(signature)
        if step is None:
            step = Step(op, kind.build(arguments))
            self._steps[signature] = step
        return step, signature

    def _arguments(self, kind: StepKind, node: Node, members: dict[str, _Member]) -> dict[str, Any]:
        names = [argument.name for argument in kind.arguments]
        admitted = _listed(("op", *names))
        for name, member in members.items():
            if name != "op" and name not in names:
                raise self.fault(
                    member.key,
                    f"`{kind.op}` has no key `{name}`; admitted here: {admitted}",
                    unresolved=True,
                )
        found: dict[str, Any] = {}
        ignore_case = False
        if "i" in names and "i" in members:
            ignore_case = self.flag(members["i"].value, f"`i` of `{kind.op}`", unresolved=True)
        for argument in kind.arguments:
            if argument.name in members:
                found[argument.name] = self._argument(
                    kind, argument, members[argument.name].value, ignore_case
                )
            elif argument.required:
                raise self.fault(
                    node,
                    f"`{kind.op}` lacks the key `{argument.name}`; admitted here: {admitted}",
                    unresolved=True,
                )
        return found

    def _argument(self, kind: StepKind, argument: Argument, node: Node, ignore_case: bool) -> Any:
        what = f"`{argument.name}` of `{kind.op}`"
        if argument.kind == "flag":
            return ignore_case
        try:
            match argument.kind:
                case "conditions":
                    return tuple(self._conditions(node, what))
                case "texts":
                    return tuple(
                        self.text(each, f"an entry of {what}", empty=True)
                        for each in self.sequence(node, what)
                    )
                case "text":
                    return self.text(node, what, empty=True)
                case _:
                    source = self.text(node, what, empty=True)
        except _FaultError as fault:
            fault.unresolved = True
            raise
        return self._pattern(node, source, ignore_case, argument.kind == "capture")

    def _conditions(self, node: Node, what: str) -> Iterator[Condition]:
        for each in self.sequence(node, what):
            members = self.closed(each, "a condition", ("field", *CONDITION_OPERATORS), ("field",))
            operators = [name for name in members if name != "field"]
            if len(operators) != 1:
                raise self.fault(
                    each,
                    f"a condition has {len(operators)} operators; admitted here: one of "
                    f"{_listed(CONDITION_OPERATORS)}",
                )
            (operator,) = operators
            operand = self.value(members[operator].value)
            self._require_operand(members[operator].value, operator, operand)
            yield Condition(
                self.text(members["field"].value, "`field`", empty=True), operator, operand
            )

    def _require_operand(self, node: Node, operator: str, operand: Any) -> None:
        if operator == "notIn" and not isinstance(operand, list):
            raise self.fault(node, "`notIn` is not a sequence; admitted here: a sequence")
        if operator in ("size", "lte", "gte") and (
            isinstance(operand, bool) or not isinstance(operand, (int, float))
        ):
            raise self.fault(node, f"`{operator}` is not a number; admitted here: a number")

    # Relations -------------------------------------------------------------------------------

    def _relates(
        self, node: Node, known: Mapping[str, Pipeline], names: tuple[str, ...]
    ) -> tuple[Relate, ...]:
        nodes = self.sequence(node, "`relate`")
        if not nodes:
            raise self.fault(node, "`relate` is empty; admitted here: one relation or more")
        found: list[Relate] = []
        seen: set[str] = set()
        for each in nodes:
            members = self.closed(each, "a relation", RELATE_KEYS, ("id", "relation"))
            identifier = self.text(members["id"].value, "`id`")
            if identifier in seen:
                raise self.fault(
                    members["id"].value,
                    f"the id `{identifier}` is there twice; admitted here: an id of its own",
                )
            seen.add(identifier)
            relate = self._relate(each, members, identifier, known, names)
            if relate is not None:
                found.append(relate)
        return tuple(found)

    def _relate(
        self,
        node: Node,
        members: dict[str, _Member],
        identifier: str,
        known: Mapping[str, Pipeline],
        names: tuple[str, ...],
    ) -> Relate | None:
        relation = self.mapping(members["relation"].value, "`relation`")
        if "op" not in relation:
            raise self.fault(
                members["relation"].value,
                f"`relation` lacks the key `op`; admitted here: {_listed(RELATIONS)}",
            )
        op = self.one_of(relation["op"].value, "`op`", RELATIONS)
        kind = RELATION_KINDS[op]
        keys = ("op", *kind.names, *(("strict",) if kind.strict else ()))
        relation = self.closed(members["relation"].value, f"`{op}`", keys, ("op", *kind.names))
        if kind.pair_of:
            referred = self._two(relation["of"].value, f"`of` of `{op}`")
        else:
            referred = tuple(relation[name].value for name in kind.names)  # type: ignore[assignment]
        strict = "strict" in relation and self.flag(relation["strict"].value, "`strict`")
        message, left, right = self._messages(node, members, op)
        operands: list[str] = []
        for each in referred:
            name = self.one_of(each, "an extraction's name", names)
            pipeline = known.get(name)
            if pipeline is None:
                # It could not be resolved, and that is the entry's fault already.
                return None
            if pipeline.paired != kind.paired:
                raise self.fault(
                    each,
                    f"`{name}` {'has two sides' if pipeline.paired else 'has one side'}; "
                    "admitted here: an extraction of state for unchanged, of another source for "
                    "every other relation",
                )
            operands.append(name)
        return Relate(
            identifier,
            kind,
            operands[0],
            operands[1] if len(operands) > 1 else None,
            strict,
            message,
            left,
            right,
        )

    def _messages(
        self, node: Node, members: dict[str, _Member], op: str
    ) -> tuple[str | None, str | None, str | None]:
        if ("message" in members) == ("messageBySide" in members):
            raise self.fault(
                node,
                "a relation has one of message and messageBySide; admitted here: "
                f"{_listed(RELATE_KEYS)}",
            )
        if "message" in members:
            return self.text(members["message"].value, "`message`"), None, None
        if op != "equal":
            raise self.fault(
                members["messageBySide"].key,
                f"`{op}` has no sides; admitted here: message",
            )
        sides = self.closed(
            members["messageBySide"].value,
            "`messageBySide`",
            ("left", "right"),
            ("left", "right"),
        )
        return (
            None,
            self.text(sides["left"].value, "`left`"),
            self.text(sides["right"].value, "`right`"),
        )


def merged(files: Sequence[Disciplines]) -> Disciplines:
    """Several files as one. Refusal 2 where two of them have one identifier."""
    if len(files) == 1:
        return files[0]
    seen: dict[str, Place] = {}
    for file in files:
        labelled: tuple[Entry | Draft, ...] = (*file.entries, *file.drafts)
        for entry in labelled:
            if entry.id in seen:
                raise Refusal(
                    ExitCode.USAGE,
                    f"{entry.place}: the id `{entry.id}` is the one of {seen[entry.id]} too; "
                    "admitted here: an id of its own, it labels every row",
                )
            seen[entry.id] = entry.place
    digests = "\n".join(file.digest for file in files)
    return Disciplines(
        ", ".join(file.name for file in files),
        "sha256:" + hashlib.sha256(digests.encode()).hexdigest(),
        tuple(entry for file in files for entry in file.entries),
        tuple(draft for file in files for draft in file.drafts),
        tuple(dict.fromkeys(path for file in files for path in file.protected)),
    )
