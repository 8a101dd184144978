"""One line of a batch laid out: its plan, its arm's sealed tree, and what its sessions share."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from recorder.batch.recording import Line
from recorder.batch.spec import LineSpec
from recorder.plan.composition import compose_plan
from recorder.plan.declaration import load_declaration
from recorder.plan.probes import Probe
from recorder.plan.rendering import render_plan
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import lay_arm
from recorder.workspace.guards import guard_workspace
from recorder.workspace.manifest import manifest_of, write_manifest
from recorder.workspace.seal import seal

MCP_FILE = ".mcp.json"


@dataclass(frozen=True)
class LaidLine:
    """A line ready to run. ``probes`` in the plan's order (identifiers sorted)."""

    line: Line
    probes: tuple[Probe, ...]
    repetitions: int
    plan_text: str
    manifest_text: str


def lay_line(
    corpus: Path,
    spec: LineSpec,
    tree: Path,
    *,
    seed: int = 0,
    lock: str | None = None,
    max_turns: int | None = None,
) -> LaidLine:
    """Plan a line, lay its arm at ``tree`` and seal it for every probe of the plan.

    Refusals: 5 and 11 (the plan), 2 and 8 (the arm), 4, 6, 8 and 9 (the sealed tree). The tree
    must stay until its last session has ended. ``max_turns`` overrides the tier's own.
    """
    plan = compose_plan(
        corpus,
        tier=spec.tier,
        arm=spec.arm,
        category=spec.category,
        exclude=spec.exclude,
        repetitions=spec.repetitions,
        seed=seed,
        lock=lock,
    )
    if plan.refusal is not None:
        raise Refusal(
            ExitCode.PLAN_REFUSES, f"the {spec.tier} plan refuses this run: {plan.refusal}"
        )
    declaration = load_declaration(corpus, ExitCode.INSTRUMENT)
    identifiers = [probe.id for probe in plan.selected]
    delta = lay_arm(corpus, declaration, spec.tier, spec.arm, tree)
    seal(tree, identifiers, corpus, declaration)
    guard_workspace(tree, corpus=corpus, declaration=declaration, probes=identifiers)
    manifest = manifest_of(tree)
    own = servers_of(tree / MCP_FILE)

    return LaidLine(
        line=Line(
            tier=spec.tier,
            arm=spec.arm,
            members=plan.identity_members,
            tree=tree,
            manifest=manifest,
            delta=delta.lines(),
            # One list of allowed tools for every arm, so the corpus's servers, not the arm's.
            servers=tuple(sorted(own | servers_of(corpus / MCP_FILE))),
            declared=own,
            has_mcp_configuration=(tree / MCP_FILE).is_file(),
            max_turns=max_turns if max_turns is not None else plan.max_turns,
        ),
        probes=plan.selected,
        repetitions=plan.repetitions,
        plan_text=render_plan(plan),
        manifest_text=write_manifest(manifest),
    )


def servers_of(path: Path) -> frozenset[str]:
    """The names of the MCP servers that a ``.mcp.json`` declares. Refusal 2 for a broken one."""
    try:
        document = json.loads(path.read_bytes())
        servers = document["mcpServers"]
        if not isinstance(servers, dict):
            raise TypeError("mcpServers is not an object")
    except FileNotFoundError:
        # A tree without the file declares no server.
        return frozenset()
    except (ValueError, KeyError, TypeError) as error:
        raise Refusal(
            ExitCode.USAGE, f"{path}: declares no MCP servers that can be read: {error!r}"
        ) from error
    return frozenset(servers)
