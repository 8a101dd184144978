"""One line of a batch laid out: its plan, its arm's sealed tree, and what its sessions share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from recorder.batch.checking import Check
from recorder.batch.recording import Line
from recorder.batch.spec import BatchSpec, LineSpec, with_count
from recorder.disciplines.artifacts import judges_artifacts
from recorder.disciplines.declaration import Disciplines
from recorder.disciplines.loading import load_disciplines
from recorder.plan.census import Census
from recorder.plan.command import ask_plan, plan_arguments
from recorder.plan.composition import compose_plan
from recorder.plan.declaration import DECLARATION, Declaration, load_declaration
from recorder.plan.reading import read_plan, read_plan_file
from recorder.plan.run_plan import PlannedTask, RunPlan, run_plan_of, run_plan_of_text
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import lay_arm
from recorder.workspace.guards import guard_workspace
from recorder.workspace.leaks import file_leaks
from recorder.workspace.manifest import digest_of, manifest_of, write_manifest
from recorder.workspace.seal import seal
from recorder.workspace.servers import MCP_FILE, servers_of

# As `recorder plan` names what a line of a batch has without the dashes.
_MEMBERS = ("--tier ", "--arm ", "--category ", "--exclude ", "--repetitions ")


@dataclass(frozen=True)
class LaidLine:
    """A line ready to run. ``probes`` in the plan's order (identifiers sorted)."""

    line: Line
    probes: tuple[PlannedTask, ...]
    repetitions: int
    plan: RunPlan
    manifest_text: str
    declaration: Declaration

    @property
    def plan_text(self) -> str:
        return self.plan.text

    def name(self, number: int) -> str:
        """The line as files name it: ``L1-campaign-present``."""
        return f"L{number}-{self.line.tier}-{self.line.arm}"

    @property
    def session_dollars(self) -> Decimal:
        """What a session is held to cost before it ran: its plan's figure, else its tier's."""
        tier = self.declaration.tiers[self.line.tier]
        cents = self.plan.session_cost_cents
        return Decimal(tier.session_cost_cents if cents is None else cents) / 100

    @property
    def ceiling_dollars(self) -> Decimal:
        """What the sessions of the line's tier may cost together."""
        return Decimal(self.declaration.tiers[self.line.tier].budget_cents) / 100

    def task(self, identifier: str) -> PlannedTask:
        """A probe of the line. Refuses (11) one that its plan does not select."""
        return self.plan.task(identifier)


@dataclass(frozen=True, slots=True)
class PlanSource:
    """Where the plan of a line comes from: its own file, an engine's command, or this package.

    ``lock`` is for a plan composed here: a digest or a file, None for the corpus' own. ``census``
    is the corpus' where many lines are planned over it.
    """

    command: str | None = None
    lock: str | None = None
    seed: int = 0
    census: Census | None = None


def plan_line(corpus: Path, spec: LineSpec, source: PlanSource) -> RunPlan:
    """The plan of one line, which may refuse its run.

    Refuses (2) an impossible line, (3) a plan command that is not there, (4) a corpus that moved
    since a plan's text was made, (5) what cannot be planned, (11) a text that refuses its run.
    """
    if spec.plan is not None:
        read, text = read_plan_file(Path(spec.plan))
        return run_plan_of_text(read, text, corpus, spec.tier, spec.arm)
    if source.command is not None:
        arguments = plan_arguments(
            tier=spec.tier,
            category=spec.category,
            exclude=spec.exclude,
            repetitions=spec.repetitions,
            seed=source.seed,
        )
        text = ask_plan(source.command, arguments, corpus)
        read = read_plan(text, f"`{source.command}`")
        return run_plan_of_text(read, text, corpus, spec.tier, spec.arm)
    composed = compose_plan(
        corpus,
        tier=spec.tier,
        arm=spec.arm,
        category=spec.category,
        exclude=spec.exclude,
        repetitions=spec.repetitions,
        seed=source.seed,
        lock=source.lock,
        census=source.census,
    )
    return run_plan_of(composed)


class LineFaults:
    """What the lines of a batch ask of a corpus in vain, told all at once."""

    def __init__(self) -> None:
        self._found: list[str] = []
        self._code: ExitCode | None = None

    @contextmanager
    def of(self, number: int) -> Iterator[None]:
        """Keep the refusal of a line's own members, by the names that they have in the file."""
        try:
            yield
        except Refusal as refusal:
            if not refusal.reasons[0].startswith(_MEMBERS):
                raise
            self._code = self._code or refusal.code
            self._found += (f"line {number}: {reason[2:]}" for reason in refusal.reasons)

    def require_none(self) -> None:
        """Refuses with the first one's code (2 or 5), every reason told."""
        if self._code is not None:
            raise Refusal(self._code, *self._found)


def lay_lines(spec: BatchSpec, corpus: Path, work: Path) -> list[LaidLine]:
    """Every line of a batch, its tree under ``work``.

    Refuses (2) a line without a turn cap, and (2, 5) what lines ask in vain.
    """
    laid: list[LaidLine] = []
    faults = LineFaults()
    for number, line in enumerate(spec.lines, start=1):
        counted = with_count(spec, line, laid[0].repetitions if laid else None)
        with faults.of(number):
            laid.append(
                lay_line(
                    corpus,
                    counted,
                    work / str(number),
                    seed=spec.seed,
                    lock=spec.lock,
                    max_turns=spec.max_turns,
                    need_cap=True,
                    plan_command=spec.plan_command,
                )
            )
    faults.require_none()
    return laid


def lay_line(
    corpus: Path,
    spec: LineSpec,
    tree: Path,
    *,
    seed: int = 0,
    lock: str | None = None,
    max_turns: int | None = None,
    need_cap: bool = False,
    plan_command: str | None = None,
    probe: str | None = None,
) -> LaidLine:
    """Plan a line, lay its arm at ``tree`` and seal it for every probe of the plan.

    Refusals: 5 and 11 (the plan), 2 and 8 (the arm), 4, 6, 8 and 9 (the sealed tree, and what
    leaks from its files). The tree must stay until its last session has ended. ``max_turns``
    overrides the tier's own, and with ``need_cap`` one of them has to be there (2); ``probe`` is
    one that the plan has to select (11).
    """
    if not corpus.is_dir():
        raise Refusal(ExitCode.PLAN, f"{corpus}: is no directory; --corpus names the tree")
    # Before the plan, which refuses a declaration with another code: nothing is planned over an
    # instrument that cannot be read.
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    plan = plan_line(corpus, spec, PlanSource(plan_command, lock, seed))
    plan.require_start()
    if need_cap and max_turns is None and plan.max_turns is None:
        raise Refusal(
            ExitCode.USAGE,
            f"{plan.name}: declares no `max_turns`, so nothing would end a session that goes on "
            "and on: declare it in the corpus, or give the batch file one",
        )
    if probe is not None:
        plan.task(probe)
    repetitions = plan.repetitions or spec.repetitions
    if repetitions is None:
        raise Refusal(
            ExitCode.PLAN, f"{plan.name}: states no count of repetitions; give the line its own"
        )
    identifiers = [probe.id for probe in plan.probes]
    delta = lay_arm(corpus, declaration, spec.tier, spec.arm, tree)
    seal(tree, identifiers, corpus, declaration)
    guard_workspace(tree, corpus=corpus, declaration=declaration, probes=identifiers)
    arm = f"the `{spec.arm}` arm of the `{spec.tier}` tier"
    file_leaks(tree, declaration, identifiers).require_none(arm)
    manifest = manifest_of(tree)
    own = servers_of(tree / MCP_FILE)
    return LaidLine(
        line=Line(
            tier=spec.tier,
            arm=spec.arm,
            members=plan.members,
            tree=tree,
            manifest=manifest,
            delta=delta.lines(),
            # One list of allowed tools for every arm, so the corpus's servers, not the arm's.
            servers=tuple(sorted(own | servers_of(corpus / MCP_FILE))),
            declared=own,
            has_mcp_configuration=(tree / MCP_FILE).is_file(),
            max_turns=max_turns if max_turns is not None else plan.max_turns,
            declared_delta=delta.declared,
            identifiers=declaration.identifiers,
            check=lay_check(corpus, declaration, spec.tier, tree),
            disciplines=read_disciplines(corpus, declaration),
        ),
        probes=plan.probes,
        repetitions=repetitions,
        plan=plan,
        manifest_text=write_manifest(manifest),
        declaration=declaration,
    )


def lay_check(corpus: Path, declaration: Declaration, tier: str, tree: Path) -> Check | None:
    """The declared check, its tools laid beside the arm's ``tree``; None where none is declared.

    The tools are of the present arm whatever the line's own: an ablation that takes the check
    away would else leave its sessions without findings.
    """
    if not declaration.check:
        return None
    baseline = tree.with_name(f"{tree.name}.baseline")
    lay_arm(corpus, declaration, tier, "present", baseline)
    manifest = write_manifest(manifest_of(baseline))
    return Check(
        command=declaration.check,
        baseline=baseline,
        digest=digest_of(manifest.encode()),
        over=declaration.check_over,
    )


def read_disciplines(corpus: Path, declaration: Declaration) -> Disciplines | None:
    """The declared disciplines; None where none are declared.

    They are the corpus's own whatever the arm: one that leaves the file out has findings too, and
    the file may be a part of the instrument. Refusal 8 where they cannot be read, where one is
    wrong, and where none of them judges an artifact.
    """
    name = declaration.disciplines
    if name is None:
        return None
    try:
        read = load_disciplines((corpus / name).read_bytes(), name)
    except OSError as error:
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{corpus / name}: cannot be read ({error.strerror}), and {DECLARATION} names it as "
            "the disciplines behind findings",
        ) from error
    except Refusal as refusal:
        raise Refusal(
            ExitCode.INSTRUMENT, *(f"{corpus}/{reason}" for reason in refusal.reasons)
        ) from refusal
    if not any(judges_artifacts(entry.declaration) for entry in read.entries):
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{corpus / name}: no entry of it judges an artifact by itself, so it gives no "
            "findings; see docs/findings.md",
        )
    return read
