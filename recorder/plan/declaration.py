"""``.headwater/probe.yml``: what a corpus declares about its probes, read whole or not at all.

One bad entry refuses the file. A reader that took the rest would leave the seal with half an
instrument and say nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from yaml.nodes import Node

from recorder.plan import nodes
from recorder.plan.identifiers import PatternError, compile_identifiers
from recorder.plan.nodes import NodeError, fault
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.contract import ARMS, TIERS

DECLARATION = ".headwater/probe.yml"
IDENTIFIERS = r"[A-Z]+-[A-Z]+-[0-9]{4}"
COMPONENT_ARMS = tuple(arm for arm in ARMS if arm not in ("present", "absent"))
ADDING_ARMS = frozenset({"mcp"})
"""The arms that are the present tree with something added. Every other arm takes away."""

Paths = tuple[str, ...]


def _none() -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Tier:
    """What one tier may spend and which arms it runs. Money is whole US cents.

    ``ablation`` are the paths that its absent arm removes; ``components`` the delta of each
    component arm. Paths are relative to the corpus, ``/`` between their parts.
    """

    name: str
    budget_cents: int
    session_cost_cents: int
    repetitions: int
    arms: tuple[str, ...]
    max_turns: int | None = None
    ablation: Paths = ()
    components: Mapping[str, Paths] = field(default_factory=_none)

    def delta(self, arm: str) -> Paths:
        """The paths in which an arm differs from the present tree, as declared."""
        if arm == "present":
            return ()
        return self.ablation if arm == "absent" else self.components.get(arm, ())


@dataclass(frozen=True, slots=True)
class Power:
    """The rates a campaign is sized to separate; each number lies between 0 and 1."""

    present: float
    absent: float
    alpha: float
    power: float
    pooled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Declaration:
    """The members of the file. An absent list is empty, ``shelves`` absent is the default.

    ``check`` is the command behind ``findings``, as its words; empty where nothing checks.
    ``check_over`` says what it reads in the place of ``{workspace}``: the session's
    ``workspace``, or the ``corpus``, one copy of it that holds all that the session changed.
    ``disciplines`` is the file whose entries are behind ``findings`` too; None for no such file.
    """

    tiers: Mapping[str, Tier]
    instrument: Paths = ()
    folds: Paths = ()
    shelves: Paths = ("docs",)
    answer_keys: Mapping[str, Paths] = field(default_factory=_none)
    leaks: Mapping[str, tuple[str, ...]] = field(default_factory=_none)
    leaks_kept: tuple[str, ...] = ()
    power: Power | None = None
    identifiers: str = IDENTIFIERS
    check: tuple[str, ...] = ()
    check_over: str = "workspace"
    disciplines: str | None = None


def load_declaration(corpus: Path, refuse_with: ExitCode) -> Declaration:
    """Read the declaration of a corpus. ``refuse_with`` is the code of the verb that asks:
    5 for a plan, 8 for a seal or a guard, 2 for an arm.
    """
    path = corpus / DECLARATION
    try:
        content = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise Refusal(
            refuse_with,
            f"{path}: cannot be read ({error.strerror}); a corpus declares its instrument and "
            "its tiers there",
        ) from error
    except UnicodeDecodeError as error:
        raise Refusal(refuse_with, f"{path}: is not UTF-8; write it as UTF-8") from error
    try:
        return parse_declaration(content)
    except NodeError as error:
        raise Refusal(
            refuse_with,
            f"{path}:{error.line}:{error.column}: {error.reason}; the whole file is refused "
            "until that is put right",
        ) from error


def parse_declaration(content: str) -> Declaration:
    """The declaration of a text. Raises ``NodeError`` with line and column of the first fault."""
    root = nodes.compose(content)
    if root is None:
        raise NodeError(1, 1, "the file declares nothing")
    read: dict[str, Node] = {}
    for name, key, value in nodes.mapping(root, "the declaration"):
        if name not in _MEMBERS:
            raise fault(key, f"`{name}` is no member of a declaration")
        read[name] = value
    if "tiers" not in read:
        raise fault(root, "the declaration has no `tiers`")
    members = {name: _MEMBERS[name](value) for name, value in read.items()}
    return Declaration(**members)  # type: ignore[arg-type]


def _paths(what: str) -> Callable[[Node], Paths]:
    return lambda node: read_paths(node, what)


def read_paths(node: Node, what: str) -> Paths:
    """A sequence of paths, none of which leaves the corpus or is the corpus itself."""
    try:
        items = list(nodes.sequence(node, what))
    except NodeError as error:
        raise fault(node, f"{what} is not a sequence of paths") from error
    found: list[str] = []
    for item in items:
        path = plain_path(nodes.text(item, f"an entry of {what}"))
        if path is None:
            raise fault(item, f"an entry of {what} leaves the tree or names it whole")
        if path in found:
            raise fault(item, f"{what} holds `{path}` twice")
        found.append(path)
    return tuple(found)


def plain_path(written: str) -> str | None:
    """A relative path without ``.``, ``..``, empty parts or NUL; None for any other."""
    path = written.strip().removesuffix("/")
    if not path or "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        return None
    return path


def _shelves(node: Node) -> Paths:
    found: list[str] = []
    for item in nodes.sequence(node, "`shelves`"):
        path = plain_path(nodes.text(item, "an entry of `shelves`").removesuffix("/**"))
        if path is None or any(mark in path for mark in "*?["):
            raise fault(item, "a shelf is a folder of the corpus, or a folder and `/**`")
        found.append(path)
    return tuple(found)


def _probe_paths(node: Node) -> Mapping[str, Paths]:
    return MappingProxyType(
        {
            probe: read_paths(value, f"the answer keys of {probe}")
            for probe, _, value in nodes.mapping(node, "`answer_keys`")
        }
    )


def _probe_texts(node: Node) -> Mapping[str, tuple[str, ...]]:
    return MappingProxyType(
        {
            probe: nodes.texts(value, f"the leak strings of {probe}")
            for probe, _, value in nodes.mapping(node, "`leaks`")
        }
    )


def _power(node: Node) -> Power:
    numbers: dict[str, float] = {}
    pooled: tuple[str, ...] = ()
    for name, key, value in nodes.mapping(node, "`power`"):
        if name == "pooled":
            pooled = nodes.texts(value, "`pooled`")
        elif name in ("present", "absent", "alpha", "power"):
            numbers[name] = nodes.fraction(value, f"`{name}` of `power`")
        else:
            raise fault(key, f"`{name}` is no member of `power`")
    for name in ("present", "absent", "alpha", "power"):
        if name not in numbers:
            raise fault(node, f"`power` has no `{name}`")
    if numbers["present"] == numbers["absent"]:
        raise fault(node, "`power` separates two rates that are the same")
    return Power(**numbers, pooled=pooled)


def _identifiers(node: Node) -> str:
    pattern = nodes.text(node, "`identifiers`")
    try:
        compile_identifiers(pattern)
    except PatternError as error:
        raise fault(node, f"`identifiers` is no pattern of identifiers: {error}") from error
    return pattern


def _check(node: Node) -> tuple[str, ...]:
    words = nodes.texts(node, "`check`")
    if not any("{workspace}" in word for word in words):
        raise fault(node, "`check` names no `{workspace}`, where the tree lies that it reads")
    return words


def _check_over(node: Node) -> str:
    over = nodes.text(node, "`check_over`")
    if over not in ("workspace", "corpus"):
        raise fault(node, "`check_over` is `workspace` or `corpus`")
    return over


def _disciplines(node: Node) -> str:
    path = plain_path(nodes.text(node, "`disciplines`"))
    if path is None:
        raise fault(node, "`disciplines` is the path of one file of the corpus")
    return path


def _tiers(node: Node) -> Mapping[str, Tier]:
    found: dict[str, Tier] = {}
    for name, key, value in nodes.mapping(node, "`tiers`"):
        if name not in TIERS:
            raise fault(key, f"`{name}` is no tier; the tiers are {', '.join(TIERS)}")
        found[name] = _tier(name, value)
    return MappingProxyType(found)


_NUMBERS = {"budget_cents": 0, "session_cost_cents": 0, "repetitions": 1, "max_turns": 1}


def _tier(name: str, node: Node) -> Tier:
    what = f"the `{name}` tier"
    numbers: dict[str, int] = {}
    arms: tuple[str, ...] | None = None
    ablation: Paths = ()
    components: Mapping[str, Paths] = MappingProxyType({})
    for member, key, value in nodes.mapping(node, what):
        if member in _NUMBERS:
            numbers[member] = nodes.whole_number(
                value, f"`{member}` of {what}", least=_NUMBERS[member]
            )
        elif member == "arms":
            arms = _arms(value, what)
        elif member == "ablation":
            ablation = read_paths(value, f"the ablation of {what}")
        elif member == "components":
            components = _components(value, name)
        else:
            raise fault(key, f"`{member}` is no member of {what}")
    for member in ("budget_cents", "session_cost_cents", "repetitions"):
        if member not in numbers:
            raise fault(node, f"{what} has no `{member}`")
    if not arms:
        raise fault(node, f"{what} has no `arms`")
    for arm in arms:
        if arm in COMPONENT_ARMS and not components.get(arm):
            raise fault(node, f"{what} runs the `{arm}` arm and declares no delta for it")
    return Tier(
        name=name,
        budget_cents=numbers["budget_cents"],
        session_cost_cents=numbers["session_cost_cents"],
        repetitions=numbers["repetitions"],
        max_turns=numbers.get("max_turns"),
        arms=arms,
        ablation=ablation,
        components=components,
    )


def _arms(node: Node, what: str) -> tuple[str, ...]:
    arms = nodes.texts(node, f"`arms` of {what}")
    for arm, item in zip(arms, nodes.sequence(node, what), strict=True):
        if arm not in ARMS:
            raise fault(item, f"`{arm}` is no arm; the arms are {', '.join(ARMS)}")
    return arms


def _components(node: Node, tier: str) -> Mapping[str, Paths]:
    found: dict[str, Paths] = {}
    for arm, key, value in nodes.mapping(node, f"`components` of the `{tier}` tier"):
        if arm not in COMPONENT_ARMS:
            raise fault(key, f"`{arm}` is no component arm of the `{tier}` tier")
        found[arm] = read_paths(value, f"the `{arm}` delta of the `{tier}` tier")
        if not found[arm]:
            raise fault(value, f"the `{arm}` delta of the `{tier}` tier is empty")
    return MappingProxyType(found)


_MEMBERS: Mapping[str, Callable[[Node], object]] = {
    "tiers": _tiers,
    "instrument": _paths("`instrument`"),
    "folds": _paths("`folds`"),
    "shelves": _shelves,
    "answer_keys": _probe_paths,
    "leaks": _probe_texts,
    "leaks_kept": lambda node: nodes.texts(node, "`leaks_kept`"),
    "power": _power,
    "identifiers": _identifiers,
    "check": _check,
    "check_over": _check_over,
    "disciplines": _disciplines,
}
