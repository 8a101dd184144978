"""What a batch would run, cost and leak, said before anything runs: no engine is asked.

Prices are sums over lines; a leak-kept probe, whose answer its arm is meant to be given, is summed
apart from the others of its category.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import structs

from recorder.batch.given import require_pin
from recorder.batch.line import LineFaults, PlanSource, plan_line, read_disciplines
from recorder.batch.spec import BatchSpec, LineSpec, with_count
from recorder.plan.census import take_census
from recorder.plan.composition import dollars
from recorder.plan.declaration import Declaration, load_declaration
from recorder.plan.power import sample_size
from recorder.plan.run_plan import RunPlan
from recorder.refusal import ExitCode, Refusal
from recorder.stream.provider import cents
from recorder.workspace.arms import lay_arm
from recorder.workspace.guards import guard_workspace
from recorder.workspace.leaks import (
    Leaks,
    ToolLister,
    declares_tools,
    file_leaks,
    find_leaks,
    list_tools,
    tool_texts,
)
from recorder.workspace.seal import seal


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of one line, one probe's category, and their price in whole cents."""

    line: int
    tier: str
    arm: str
    category: str
    leak_kept: bool
    sessions: int
    cents: int


class PricedLine(msgspec.Struct, frozen=True, kw_only=True):
    """One line: how many probes and repetitions. ``ceiling_cents`` is what its tier may spend,
    and ``over`` that its plan refuses for its price alone."""

    number: int
    tier: str
    arm: str
    category: str | None
    probes: int
    repetitions: int
    sessions: int
    cents: int
    ceiling_cents: int
    over: bool
    leak_kept: tuple[str, ...]
    max_turns: int | None

    @property
    def kept_alone(self) -> bool:
        """Whether every probe of the line is leak-kept."""
        return 0 < self.probes == len(self.leak_kept)

    def lines(self) -> Iterator[str]:
        name = f"L{self.number}"
        narrowed = f" {self.category}" if self.category else ""
        yield (
            f"{name} {self.tier} {self.arm}{narrowed}: {self.probes} probes x "
            f"{self.repetitions} repetitions = {self.sessions} sessions, {dollars(self.cents)}"
        )
        if self.over:
            yield (
                f"{name} {self.sessions} sessions project {dollars(self.cents)} against a "
                f"declared ceiling of {dollars(self.ceiling_cents)}"
            )
        if self.max_turns is None:
            yield (
                f"{name} declares no `max_turns`, and no session starts without one: declare it in "
                "the corpus, or give the batch file one"
            )
        if self.kept_alone:
            yield f"{name} holds leak-kept probes alone, on a line of its own"
        elif self.leak_kept:
            yield (
                f"{name} holds leak-kept probes beside others: {', '.join(self.leak_kept)}; "
                "give them a line of their own"
            )


class PooledCategory(msgspec.Struct, frozen=True, kw_only=True):
    """A category that is counted over all of its probes: what each probe needs in each arm."""

    tier: str
    category: str
    probes: int
    repetitions: int
    planned: int

    def line(self) -> str:
        enough = "enough" if self.planned >= self.repetitions * self.probes else "too few"
        return (
            f"power: pooled category {self.tier} {self.category}, {self.probes} probes: "
            f"{self.repetitions} repetitions of each probe in each arm; the batch plans "
            f"{self.planned} sessions in its smallest arm, {enough}"
        )


class PowerNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the declared difference needs of an arm."""

    present: float
    absent: float
    alpha: float
    power: float
    sessions: int
    corrected: int
    pooled: tuple[PooledCategory, ...]

    def lines(self) -> Iterator[str]:
        yield (
            f"power: {self.present:g} against {self.absent:g}, two-sided {self.alpha:g}, power "
            f"{self.power:g}: needs {self.sessions} sessions per arm, {self.corrected} with the "
            "Fleiss continuity correction"
        )
        yield from (pooled.line() for pooled in self.pooled)


class Tree(msgspec.Struct, frozen=True, kw_only=True):
    """The tree of one arm, sealed for the probes of its ``lines``.

    ``tools`` are the names of its MCP servers' tools; None where they were not listed, which
    leaves what they say unlooked at.
    """

    lines: tuple[int, ...]
    tier: str
    arm: str
    delta: tuple[str, ...]
    sentence: str
    leaks: tuple[str, ...]
    undeclared: tuple[str, ...]
    servers: bool
    tools: tuple[str, ...] | None
    refused: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"tree {' '.join(f'L{number}' for number in self.lines)} {self.tier} {self.arm}"

    def said(self) -> Iterator[str]:
        for line in self.delta or ("the present tree",):
            yield f"{self.name}: {line}"
        if self.tools is not None:
            yield f"{self.name}: its servers list {', '.join(self.tools)}"
        elif self.servers:
            yield f"{self.name}: declares MCP servers, whose tools were not listed"
        for line in self.leaks:
            yield f"{self.name}: {line}"
        for probe in self.undeclared:
            yield f"{self.name}: undeclared {probe}"


class DryRun(msgspec.Struct, frozen=True, kw_only=True):
    """A batch before it runs. ``ceilings`` maps each tier to what it may spend, in cents."""

    lines: tuple[PricedLine, ...]
    shares: tuple[Share, ...]
    ceilings: dict[str, int]
    sessions: int
    cents: int
    max_sessions: int | None
    slices: int | None
    cap_cents: int | None = None
    power: PowerNeeds | None
    trees: tuple[Tree, ...]

    def said(self) -> Iterator[str]:
        """The whole report, a line at a time."""
        for line in self.lines:
            yield from line.lines()
        for (tier, arm), shares in _grouped(self.shares, lambda s: (s.tier, s.arm)):
            yield f"arm {tier} {arm}: {_priced(shares)}"
        for (tier,), shares in _grouped(self.shares, lambda s: (s.tier,)):
            yield f"tier {tier}: {_against(shares, self.ceilings[tier])}"
        for (tier, category, kept), shares in _grouped(
            self.shares, lambda s: (s.tier, s.category, " (leak-kept)" if s.leak_kept else "")
        ):
            part = 100 * sum(s.sessions for s in shares) / self.sessions if self.sessions else 0.0
            yield f"category {tier} {category}{kept}: {_priced(shares)}, {part:.1f}% of the total"
        yield (
            f"total: {self.sessions} sessions, {dollars(self.cents)} against "
            f"{dollars(sum(self.ceilings.values()))}"
        )
        if self.cap_cents is not None:
            fits = "within" if self.cents <= self.cap_cents else "above"
            yield f"cap: {dollars(self.cap_cents)}, and the batch's price is {fits} it"
        if self.slices is not None:
            yield (
                f"slices: {self.sessions} sessions in {self.slices} slices of at most "
                f"{self.max_sessions}"
            )
        if self.power is not None:
            yield from self.power.lines()
        for tree in self.trees:
            yield from tree.said()

    def require_no_leak(self) -> None:
        """Refuse (9) a declared string that nobody keeps, once everything is said."""
        reasons = [reason for tree in self.trees for reason in tree.refused]
        if reasons:
            raise Refusal(ExitCode.NAMED, *reasons)


def dry_run(
    spec: BatchSpec,
    corpus: Path,
    work: Path,
    *,
    max_sessions: int | None = None,
    repetitions: int | None = None,
    lister: ToolLister | None = None,
    answered: Callable[[Iterable[str]], None] = lambda _: None,
) -> DryRun:
    """Plan, price and lay every line of a batch; ``work`` is where the trees go.

    A plan above its ceiling is priced like any other. ``answered`` gets every probe that is to
    run, and refuses what nothing answers. Refuses (4) a corpus that is not the pinned one, (2) a
    declaration that cannot be read, (5) what cannot be planned, (11) a plan that refuses for
    another reason, (8) an arm that is not its delta, disciplines that are wrong and, where
    ``lister`` asks them, servers without a tool, (4, 6, 9) what the guards of a workspace refuse.
    """
    if not corpus.is_dir():
        raise Refusal(ExitCode.PLAN, f"{corpus}: is no directory; `corpus` names the tree")
    declaration = load_declaration(corpus, ExitCode.USAGE)
    read_disciplines(corpus, declaration)
    source = PlanSource(spec.plan_command, spec.lock, spec.seed, take_census(corpus, declaration))
    planned: list[tuple[LineSpec, RunPlan]] = []
    faults = LineFaults()
    for number, line in enumerate(spec.lines, start=1):
        own = with_count(spec, line, planned[0][1].repetitions if planned else None)
        with faults.of(number):
            planned.append((line, _planned(corpus, _repeated(own, repetitions), source)))
    faults.require_none()
    require_pin(spec.pin, corpus, planned[0][1].members.tree)
    answered(probe.id for _, plan in planned for probe in plan.probes)
    lines: list[PricedLine] = []
    shares: list[Share] = []
    for number, (line, plan) in enumerate(planned, start=1):
        found = _shares(number, line, plan, declaration)
        shares += found
        lines.append(_priced_line(number, line, plan, found, declaration, spec.max_turns))
    sessions = sum(share.sessions for share in shares)
    return DryRun(
        lines=tuple(lines),
        shares=tuple(shares),
        ceilings={
            tier: declaration.tiers[tier].budget_cents
            for tier in dict.fromkeys(line.tier for line in spec.lines)
        },
        sessions=sessions,
        cents=sum(share.cents for share in shares),
        max_sessions=max_sessions,
        slices=None if max_sessions is None else math.ceil(sessions / max_sessions),
        cap_cents=None if spec.cap is None else cents(spec.cap),
        power=_power(declaration, shares, planned),
        trees=tuple(_trees(planned, corpus, declaration, work, lister)),
    )


def _repeated(line: LineSpec, repetitions: int | None) -> LineSpec:
    if repetitions is None:
        return line
    if line.plan is not None:
        raise Refusal(
            ExitCode.USAGE,
            f"--repetitions: {line.plan} fixes those of its line; plan that one again",
        )
    return structs.replace(line, repetitions=repetitions)


def _planned(corpus: Path, line: LineSpec, source: PlanSource) -> RunPlan:
    plan = plan_line(corpus, line, source)
    if not plan.over_ceiling:
        plan.require_start()
    if plan.repetitions is None or plan.session_cost_cents is None:
        raise Refusal(
            ExitCode.PLAN, f"{plan.name}: states no count of repetitions or no price of a session"
        )
    return plan


def _shares(
    number: int, line: LineSpec, plan: RunPlan, declaration: Declaration
) -> tuple[Share, ...]:
    counted = Counter((probe.category, probe.id in declaration.leaks_kept) for probe in plan.probes)
    return tuple(
        Share(
            line=number,
            tier=line.tier,
            arm=line.arm,
            category=category,
            leak_kept=kept,
            sessions=probes * (plan.repetitions or 0),
            cents=probes * (plan.repetitions or 0) * (plan.session_cost_cents or 0),
        )
        for (category, kept), probes in counted.items()
    )


def _priced_line(
    number: int,
    line: LineSpec,
    plan: RunPlan,
    shares: Sequence[Share],
    declaration: Declaration,
    max_turns: int | None,
) -> PricedLine:
    tier = declaration.tiers.get(line.tier)
    if tier is None:
        raise Refusal(
            ExitCode.PLAN,
            f"{plan.name}: is of the {line.tier} tier, which the declaration does not carry",
        )
    price = sum(share.cents for share in shares)
    return PricedLine(
        number=number,
        tier=line.tier,
        arm=line.arm,
        category=line.category,
        probes=len(plan.probes),
        repetitions=plan.repetitions or 0,
        sessions=sum(share.sessions for share in shares),
        cents=price,
        ceiling_cents=tier.budget_cents,
        over=price > tier.budget_cents,
        leak_kept=tuple(p.id for p in plan.probes if p.id in declaration.leaks_kept),
        max_turns=plan.max_turns if max_turns is None else max_turns,
    )


def _power(
    declaration: Declaration,
    shares: Sequence[Share],
    planned: Sequence[tuple[LineSpec, RunPlan]],
) -> PowerNeeds | None:
    power = declaration.power
    if power is None:
        return None
    needed = sample_size(power)
    pooled = []
    for tier in dict.fromkeys(line.tier for line, _ in planned):
        for category in power.pooled:
            probes = {
                probe.id
                for line, plan in planned
                for probe in plan.probes
                if line.tier == tier
                and probe.category == category
                and probe.id not in declaration.leaks_kept
            }
            arms: Counter[str] = Counter()
            for share in shares:
                if (share.tier, share.category, share.leak_kept) == (tier, category, False):
                    arms[share.arm] += share.sessions
            if probes:
                pooled.append(
                    PooledCategory(
                        tier=tier,
                        category=category,
                        probes=len(probes),
                        repetitions=needed.each(len(probes)),
                        planned=min(arms.values()),
                    )
                )
    return PowerNeeds(
        present=power.present,
        absent=power.absent,
        alpha=power.alpha,
        power=power.power,
        sessions=needed.plain,
        corrected=needed.corrected,
        pooled=tuple(pooled),
    )


def _trees(
    planned: Sequence[tuple[LineSpec, RunPlan]],
    corpus: Path,
    declaration: Declaration,
    work: Path,
    lister: ToolLister | None,
) -> Iterator[Tree]:
    """Each distinct tree once: an arm, sealed for one selection of probes."""
    numbers: dict[tuple[str, str, tuple[str, ...]], list[int]] = {}
    for number, (line, plan) in enumerate(planned, start=1):
        identifiers = tuple(probe.id for probe in plan.probes)
        numbers.setdefault((line.tier, line.arm, identifiers), []).append(number)
    for (tier, arm, identifiers), lines in numbers.items():
        tree = work / str(lines[0])
        delta = lay_arm(corpus, declaration, tier, arm, tree)
        seal(tree, identifiers, corpus, declaration)
        guard_workspace(tree, corpus=corpus, declaration=declaration, probes=identifiers)
        leaks = file_leaks(tree, declaration, identifiers)
        tools: tuple[str, ...] | None = None
        if lister is not None and declares_tools(tree):
            listed = list_tools(tree, lister)
            texts = tool_texts(listed)
            tools = tuple(text.name.removeprefix("mcp:") for text in texts)
            said = find_leaks(texts, declaration, identifiers)
            leaks = Leaks((*leaks.found, *said.found), leaks.undeclared)
        yield Tree(
            lines=tuple(lines),
            tier=tier,
            arm=arm,
            delta=delta.lines(),
            sentence=delta.sentence(),
            leaks=tuple(leak.line() for leak in leaks.found),
            undeclared=leaks.undeclared,
            servers=declares_tools(tree),
            tools=tools,
            refused=leaks.reasons(f"the `{arm}` arm of the `{tier}` tier"),
        )


def _grouped(
    shares: Iterable[Share], key: Callable[[Share], tuple[str, ...]]
) -> Iterator[tuple[tuple[str, ...], list[Share]]]:
    """The shares of each key, in the order in which keys first come."""
    groups: dict[tuple[str, ...], list[Share]] = {}
    for share in shares:
        groups.setdefault(key(share), []).append(share)
    yield from groups.items()


def _priced(shares: Iterable[Share]) -> str:
    shares = list(shares)
    sessions = sum(share.sessions for share in shares)
    return f"{sessions} sessions, {dollars(sum(share.cents for share in shares))}"


def _against(shares: Sequence[Share], ceiling: int) -> str:
    left = ceiling - sum(share.cents for share in shares)
    side = f"over by {dollars(-left)}" if left < 0 else f"within it by {dollars(left)}"
    return f"{_priced(shares)} against a ceiling of {dollars(ceiling)}: {side}"
