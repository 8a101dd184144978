"""What a run takes from a plan, whoever composed it: this package, or another engine's text.

Of a text the six members, the answers and the turn cap are taken as they are written. Only the
task of each probe comes from the corpus, whose documents must be those that the text covers.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from recorder.plan.composition import IdentityMembers, Plan
from recorder.plan.declaration import plain_path
from recorder.plan.nodes import NodeError
from recorder.plan.probes import task_of
from recorder.plan.reading import PlannedProbe, PlanText
from recorder.plan.rendering import render_plan
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import digest_of

_WHOLE = re.compile(r"0|[1-9][0-9]{0,17}")


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """One probe to run: its task word for word, and its declared answers, empty where none are."""

    id: str
    category: str
    task: str
    answers: tuple[str, ...]


@dataclass(frozen=True)
class RunPlan:
    """A plan as a run uses it. ``text`` is the whole plan as it is kept beside a batch.

    ``session_cost_cents`` and ``repetitions`` are None where the text states none. ``refusal``
    is why the run does not start, and ``over_ceiling`` that the price alone is why.
    """

    name: str
    members: IdentityMembers
    tier: str
    arms: tuple[str, ...]
    probes: tuple[PlannedTask, ...]
    repetitions: int | None
    max_turns: int | None
    session_cost_cents: int | None
    refusal: str | None
    over_ceiling: bool
    text: str

    def require_start(self) -> None:
        """Refuse (11) a plan that refuses its run."""
        if self.refusal is not None:
            raise Refusal(ExitCode.PLAN_REFUSES, f"{self.name} refuses this run: {self.refusal}")

    def task(self, identifier: str) -> PlannedTask:
        """A probe of the selection. Refuses (11) one that it does not hold."""
        for probe in self.probes:
            if probe.id == identifier:
                return probe
        raise Refusal(
            ExitCode.PLAN_REFUSES,
            f"{self.name} does not select {identifier}; it selects "
            f"{', '.join(probe.id for probe in self.probes) or 'none'}",
        )


def run_plan_of(plan: Plan) -> RunPlan:
    """A plan that was composed here."""
    return RunPlan(
        name=f"the {plan.tier_name} plan",
        members=plan.identity_members,
        tier=plan.tier_name,
        arms=plan.arms,
        probes=tuple(
            PlannedTask(probe.id, probe.category, probe.task, probe.answers)
            for probe in plan.selected
        ),
        repetitions=plan.repetitions,
        max_turns=plan.max_turns,
        session_cost_cents=plan.session_cost_cents,
        refusal=plan.refusal,
        over_ceiling=plan.refusal is not None and plan.over_ceiling,
        text=render_plan(plan),
    )


def run_plan_of_text(plan: PlanText, text: str, corpus: Path, tier: str, arm: str) -> RunPlan:
    """A plan that was printed elsewhere, for one tier and arm.

    Refuses (11) a plan that refuses, (5) one of another tier or arm or without a seed that is a
    number, (4) a corpus whose documents are not those that the plan covers.
    """
    if plan.refusal is not None:
        raise Refusal(ExitCode.PLAN_REFUSES, f"{plan.name} refuses this run: {plan.refusal}")
    if plan.tier != tier:
        raise Refusal(
            ExitCode.PLAN, f"{plan.name}: is a plan of the {plan.tier} tier, not of {tier}"
        )
    if arm not in plan.arms:
        raise Refusal(
            ExitCode.PLAN,
            f"{plan.name}: plans no `{arm}` arm, it plans {', '.join(plan.arms) or 'none'}",
        )
    if not _WHOLE.fullmatch(plan.members["seed"].strip()):
        raise Refusal(
            ExitCode.PLAN,
            f"{plan.name}: its seed {plan.members['seed']!r} is not a whole number, and a "
            "transcript states one",
        )
    contents = {path: _content(corpus, path, digest, plan) for path, digest in _rows(plan)}
    return RunPlan(
        name=plan.name,
        members=IdentityMembers(
            lock=plan.members["lock"],
            tree=plan.members["tree"],
            selection=plan.members["selection"],
            read_set=plan.members["read_set"],
            seed=int(plan.members["seed"]),
            harness=plan.members["harness"],
        ),
        tier=tier,
        arms=(arm,),
        probes=tuple(_task(corpus, probe, contents) for probe in plan.probes),
        repetitions=plan.repetitions,
        max_turns=plan.max_turns,
        session_cost_cents=plan.session_cost_cents,
        refusal=None,
        over_ceiling=False,
        text=text,
    )


def _rows(plan: PlanText) -> list[tuple[str, str | None]]:
    """Every document of the read set with its digest, and the probes' own without one."""
    rows: dict[str, str | None] = {probe.path: None for probe in plan.probes}
    rows.update({path: digest for path, digest in plan.read_set.items() if digest != "-"})
    return list(rows.items())


def _content(corpus: Path, path: str, digest: str | None, plan: PlanText) -> bytes:
    if plain_path(path) != path:
        raise Refusal(ExitCode.PLAN, f"{plan.name}: the document {path} leaves the corpus")
    try:
        content = (corpus / path).read_bytes()
    except OSError as error:
        raise Refusal(
            ExitCode.MOVED,
            f"{corpus / path}: cannot be read ({error.strerror}), and {plan.name} covers it; plan "
            "again over this corpus",
        ) from error
    if digest is not None and digest_of(content) != digest:
        raise Refusal(
            ExitCode.MOVED,
            f"{corpus / path}: is {digest_of(content)}, and {plan.name} covers it as {digest}; "
            "plan again over this corpus",
        )
    return content


def _task(corpus: Path, probe: PlannedProbe, contents: dict[str, bytes]) -> PlannedTask:
    try:
        task = task_of(contents[probe.path].decode("utf-8"))
    except (NodeError, UnicodeDecodeError) as error:
        raise Refusal(
            ExitCode.PLAN, f"{corpus / probe.path}: its task cannot be read ({error})"
        ) from error
    if task is None:
        raise Refusal(ExitCode.PLAN, f"{corpus / probe.path}: has no task under `## Task`")
    return PlannedTask(probe.id, probe.category, task, probe.answers)
