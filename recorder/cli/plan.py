"""Verbs over a corpus: plan, arm, seal. They reach no engine and spend nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from recorder.plan.composition import compose_plan
from recorder.plan.declaration import load_declaration
from recorder.plan.rendering import render_plan
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import lay_arm
from recorder.workspace.seal import seal

Corpus = Annotated[Path, typer.Option(help="The tree the probes belong to.")]


def register(app: typer.Typer) -> None:
    app.command("plan")(plan)
    app.command("arm")(arm)
    app.command("seal")(seal_workspace)


def plan(
    corpus: Corpus,
    tier: Annotated[str, typer.Option()],
    arm: Annotated[str | None, typer.Option()] = None,
    category: Annotated[str | None, typer.Option()] = None,
    exclude: Annotated[list[str] | None, typer.Option(help="A probe to leave out.")] = None,
    repetitions: Annotated[int | None, typer.Option()] = None,
    seed: Annotated[int, typer.Option()] = 0,
    lock: Annotated[str | None, typer.Option(help="A digest, or a file.")] = None,
) -> None:
    """Print what a run would cover and cost; 11 where the plan refuses the run."""
    composed = compose_plan(
        corpus,
        tier=tier,
        arm=arm,
        category=category,
        exclude=tuple(exclude or ()),
        repetitions=repetitions,
        seed=seed,
        lock=lock,
    )
    sys.stdout.write(render_plan(composed))
    if composed.refusal is not None:
        raise Refusal(
            ExitCode.PLAN_REFUSES, f"the {tier} plan refuses this run: {composed.refusal}"
        )


def arm(
    tier: Annotated[str, typer.Argument()],
    name: Annotated[str, typer.Argument(metavar="ARM")],
    corpus: Corpus,
    out: Annotated[Path, typer.Option(help="A new directory for the tree.")],
) -> None:
    """Lay the tree of an arm, and print how it differs from the present tree."""
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    delta = lay_arm(corpus, declaration, tier, name, out)
    for line in delta.lines():
        print(line)
    print(delta.sentence())


def seal_workspace(
    workspace: Annotated[Path, typer.Argument(help="The tree to seal.")],
    probes: Annotated[list[str], typer.Argument(help="The probes its sessions will run.")],
    corpus: Corpus,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
) -> None:
    """Remove the instrument, and what names a probe or an answer key."""
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    sealing = seal(workspace, probes, corpus, declaration, dry_run=dry_run)
    for line in sealing.lines():
        print(line)
