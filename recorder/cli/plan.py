"""Verbs over a corpus: plan, arm, seal. They reach no engine and spend nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from recorder.batch.batch import image_id
from recorder.batch.tools import lister_on
from recorder.cli.numbers import positive
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.plan.composition import compose_plan
from recorder.plan.declaration import Declaration, load_declaration
from recorder.plan.rendering import render_members, render_plan
from recorder.refusal import ExitCode, Refusal
from recorder.session.leftovers import nothing_left
from recorder.workspace.arms import diff_arm, lay_arm
from recorder.workspace.leaks import Leaks, ToolTexts, file_leaks, tool_leaks
from recorder.workspace.listing import fold_lines, instrument_lines, key_lines, named_lines
from recorder.workspace.seal import seal, secrets_of

Corpus = Annotated[Path, typer.Option(help="The tree the probes belong to.")]

SEAL_USAGE = (
    "give WORKSPACE and at least one PROBE, or one of --instrument, --folds, --keys PROBE and "
    "--named PROBE alone; --config goes with --leak"
)


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
    repetitions: Annotated[int | None, typer.Option(parser=positive, metavar="N")] = None,
    seed: Annotated[int, typer.Option()] = 0,
    lock: Annotated[str | None, typer.Option(help="A digest, or a file.")] = None,
    identity_only: Annotated[
        bool, typer.Option("--identity-only", help="Print the six members alone.")
    ] = False,
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
    if not identity_only:
        sys.stdout.write(render_plan(composed))
    if composed.refusal is not None:
        raise Refusal(
            ExitCode.PLAN_REFUSES, f"the {tier} plan refuses this run: {composed.refusal}"
        )
    if identity_only:
        sys.stdout.write(render_members(composed))


def arm(
    tier: Annotated[str, typer.Argument(metavar="TIER")],
    name: Annotated[str, typer.Argument(metavar="ARM")],
    corpus: Corpus,
    out: Annotated[Path | None, typer.Option(help="A new directory for the tree.")] = None,
    diff: Annotated[bool, typer.Option("--diff", help="Only say how the arm differs.")] = False,
    tree: Annotated[
        Path | None, typer.Option(help="With --diff: a present tree, instead of the corpus.")
    ] = None,
) -> None:
    """Lay the tree of an arm, and print how it differs from the present tree."""
    if diff == (out is not None) or (tree is not None and not diff):
        raise Refusal(ExitCode.USAGE, "give --out DIR, or --diff and perhaps --tree DIR")
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    if out is None:
        delta = diff_arm(corpus, declaration, tier, name, tree)
    else:
        delta = lay_arm(corpus, declaration, tier, name, out)
    for line in delta.lines():
        print(line)
    if out is not None:
        print(delta.sentence())


def seal_workspace(
    corpus: Corpus,
    workspace: Annotated[
        Path | None, typer.Argument(metavar="WORKSPACE", help="The tree to seal.")
    ] = None,
    probes: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROBE...", help="The probes its sessions will run."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    leak: Annotated[
        bool, typer.Option("--leak", help="Only look for what gives an answer away.")
    ] = False,
    config: Annotated[
        Path | None, typer.Option(help="With --leak: a configuration directory to read too.")
    ] = None,
    instrument: Annotated[
        bool, typer.Option("--instrument", help="List what every arm loses.")
    ] = False,
    folds: Annotated[
        bool, typer.Option("--folds", help="List what may name a probe and stay.")
    ] = False,
    keys: Annotated[
        str | None, typer.Option(metavar="PROBE", help="List the answer keys of a probe.")
    ] = None,
    named: Annotated[
        str | None, typer.Option(metavar="PROBE", help="List the documents that name a probe.")
    ] = None,
) -> None:
    """Remove the instrument, and what names a probe or an answer key.

    A listing needs no WORKSPACE. --leak changes nothing and refuses (9) what leaks.
    """
    listings = sum((instrument, folds, keys is not None, named is not None))
    seals = workspace is not None or bool(probes) or dry_run or leak
    if listings > 1 or (listings and seals) or (config is not None and not leak):
        raise Refusal(ExitCode.USAGE, SEAL_USAGE)
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    if instrument:
        lines = instrument_lines(declaration)
    elif folds:
        lines = fold_lines(corpus, declaration)
    elif keys is not None:
        lines = key_lines(corpus, declaration, keys)
    elif named is not None:
        lines = named_lines(corpus, declaration, named)
    elif workspace is None or not probes:
        raise Refusal(ExitCode.USAGE, SEAL_USAGE)
    elif leak:
        _say_leaks(workspace, tuple(probes), corpus, declaration, config)
        return
    else:
        lines = seal(workspace, probes, corpus, declaration, dry_run=dry_run).lines()
    for line in lines:
        print(line)


def _say_leaks(
    workspace: Path,
    probes: tuple[str, ...],
    corpus: Path,
    declaration: Declaration,
    configuration: Path | None,
) -> None:
    for directory in (workspace, *([configuration] if configuration else [])):
        if not directory.is_dir():
            raise Refusal(ExitCode.USAGE, f"{directory}: is no directory")
    # A probe that the corpus does not hold is a slip, and not a probe without strings.
    secrets_of(corpus, declaration, probes)
    found = file_leaks(workspace, declaration, probes, configuration=configuration)
    for leak in found.found:
        print(leak.line())
    tools = tool_leaks(workspace, declaration, probes, listed_on_an_engine)
    for line in tools.lines():
        print(line)
    Leaks((*found.found, *tools.found), ()).require_none(str(workspace))


def listed_on_an_engine(workspace: Path) -> ToolTexts:
    """The tools of a tree's servers. Refusal 3 without an engine or its images."""
    engine = open_engine(docker_host())
    try:
        with nothing_left(engine):
            return lister_on(engine, image_id(engine, "session"))(workspace)
    finally:
        engine.close()
