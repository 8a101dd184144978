"""The verb ``transform``: a raw stream in, its event out. Only a check needs an engine."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from recorder.batch.batch import image_id
from recorder.batch.checking import Check, patched, require_workspace_named, run_check
from recorder.cli.judge import load_file
from recorder.cli.stream import READ_SIZE, answer_set
from recorder.disciplines.artifacts import (
    Artifact,
    ArtifactFindings,
    artifact_findings,
    is_artifact,
    other_files,
)
from recorder.disciplines.declaration import Disciplines
from recorder.disciplines.replay import side
from recorder.disciplines.sessions import tree_of
from recorder.disciplines.values import UNPROVEN
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.plan.declaration import load_declaration
from recorder.refusal import ExitCode, Refusal
from recorder.session.check import Tree
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.stream.observation import Observation, observe
from recorder.stream.whole import require_whole
from recorder.transcript.writer import event_yaml
from recorder.transform.cites import DEFAULT_CITES_PATTERN, compile_cites
from recorder.transform.findings import Findings
from recorder.transform.produced import ProducedFile, places_of, produced_paths
from recorder.transform.transform import TransformOptions, transform_observation
from recorder.transform.workspace_files import WorkspaceFiles
from recorder.workspace.manifest import digest_of, manifest_of, write_manifest
from recorder.workspace.packing import Placed, pack

STREAM_NAME = "standard input"


def register(app: typer.Typer) -> None:
    app.command("transform")(transform_stream)


@dataclass(frozen=True)
class Asked:
    """A check as it was asked for. ``oracle`` is the tree that the whole patch is put into."""

    check: Check
    oracle: Path | None


def transform_stream(
    probe: Annotated[str, typer.Option(help="The probe the session ran.")],
    session: Annotated[str, typer.Option(help="The session's name.")],
    workspace: Annotated[
        Path | None, typer.Option(help="The workspace as the session left it.")
    ] = None,
    produced: Annotated[
        list[str] | None, typer.Option(help="An artifact the log does not name. Repeatable.")
    ] = None,
    answers: Annotated[str | None, typer.Option(help='The declared answers, "a, b".')] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="The corpus that declares what an identifier looks like.")
    ] = None,
    check: Annotated[
        str | None,
        typer.Option(
            help="A command that reports findings over {workspace}, run in a container; its own "
            "files lie under {baseline}."
        ),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(
            help="The tree that the check's own files come from, and that the session started from."
        ),
    ] = None,
    oracle_tree: Annotated[
        Path | None,
        typer.Option(help="Check one copy of this tree that holds everything produced, instead."),
    ] = None,
    disciplines: Annotated[
        Path | None,
        typer.Option(
            help="A file of disciplines: findings are the entries that an artifact breaks."
        ),
    ] = None,
) -> None:
    """Read a raw stream on standard input and write its event on standard output."""
    if workspace is None and produced:
        raise Refusal(ExitCode.USAGE, "--produced: needs --workspace DIR to be read from")
    asked = _asked(check, baseline, oracle_tree, workspace, disciplines)
    rules = None if disciplines is None else load_file(disciplines)
    pattern = DEFAULT_CITES_PATTERN
    if corpus is not None:
        pattern = load_declaration(corpus, ExitCode.USAGE).identifiers
    files = None if workspace is None else WorkspaceFiles(workspace, compile_cites(pattern))
    options = TransformOptions(
        probe=probe,
        session=session,
        document_digest=(lambda _: "") if files is None else files.document_digest,
        produced_file=(lambda path: ProducedFile(path, "", ()))
        if files is None
        else files.produced_file,
        answers=answer_set(answers),
        named=tuple(produced or ()),
        workspaces=()
        if workspace is None
        else tuple(dict.fromkeys((str(workspace.absolute()), str(workspace.resolve())))),
        stream_name=STREAM_NAME,
    )
    observation = require_whole(observe(_standard_input()), False, STREAM_NAME)
    if asked is not None and files is not None and workspace is not None:
        findings = _findings(asked, observation, options, files, workspace)
        read = options.produced_file
        options = replace(options, produced_file=lambda path: findings.attach(read(path)))
    if rules is not None and workspace is not None:
        broken = _broken(rules, observation, options, baseline, workspace)
        reported = options.produced_file
        options = replace(options, produced_file=lambda path: broken.attach(reported(path)))
    text = event_yaml(transform_observation(observation, options))
    sys.stdout.buffer.write(text.encode())


def _standard_input() -> Iterator[bytes]:
    return iter(lambda: sys.stdin.buffer.read(READ_SIZE), b"")


def _asked(
    command: str | None,
    baseline: Path | None,
    oracle: Path | None,
    workspace: Path | None,
    disciplines: Path | None,
) -> Asked | None:
    """The check of the options. Refusal 2 for options that say nothing without one another."""
    if disciplines is not None and workspace is None:
        raise Refusal(ExitCode.USAGE, "--disciplines: needs --workspace DIR to be judged over")
    if command is None:
        if oracle is not None:
            raise Refusal(ExitCode.USAGE, "--oracle-tree: needs --check CMD, which reads it")
        if baseline is not None and disciplines is None:
            raise Refusal(
                ExitCode.USAGE,
                "--baseline: needs --check CMD or --disciplines FILE, which read it",
            )
        if baseline is not None and not baseline.is_dir():
            raise Refusal(ExitCode.USAGE, f"--baseline {baseline}: is no directory")
        return None
    if workspace is None:
        raise Refusal(ExitCode.USAGE, "--check: needs --workspace DIR to be run over")
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise Refusal(ExitCode.USAGE, f"--check {command!r}: {error}") from error
    require_workspace_named(words, f"--check {command!r}")
    if baseline is None and any("{baseline}" in word for word in words):
        raise Refusal(ExitCode.USAGE, "--check: names {baseline}, and no --baseline DIR is given")
    for name, tree in (("--baseline", baseline), ("--oracle-tree", oracle)):
        if tree is not None and not tree.is_dir():
            raise Refusal(ExitCode.USAGE, f"{name} {tree}: is no directory")
    digest = ""
    if baseline is not None:
        digest = digest_of(write_manifest(manifest_of(baseline)).encode())
    over = "workspace" if oracle is None else "corpus"
    return Asked(Check(command=words, baseline=baseline, digest=digest, over=over), oracle)


def _findings(
    asked: Asked,
    observation: Observation,
    options: TransformOptions,
    files: WorkspaceFiles,
    workspace: Path,
) -> Findings:
    """What the check reports over what was produced. Refusal 13 where it could not be run."""
    places = places_of(observation, options.workspaces, options.configuration_directories)
    inside = [
        path
        for path in produced_paths(observation, places, options.named, options.changed)
        if not path.startswith("/")
    ]
    if not inside:
        return Findings({})
    with ExitStack() as stack:
        tree = _workspace_tree(workspace)
        if asked.oracle is not None:
            copies = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="recorder-")))
            tree = _oracle_tree(asked.oracle, inside, files, copies)
        engine = open_engine(docker_host())
        stack.callback(engine.close)
        end = run_check(
            engine,
            image_id(engine, "session"),
            asked.check,
            tree,
            name=driver_name(),
            labels={DRIVER_LABEL: driver_identity()},
        )
    if end.findings is None:
        raise end.refusal or Refusal(ExitCode.OBSERVATION, "the check came to no result")
    return end.findings


def _broken(
    rules: Disciplines,
    observation: Observation,
    options: TransformOptions,
    baseline: Path | None,
    workspace: Path,
) -> ArtifactFindings:
    """The disciplines that each artifact breaks. Without a baseline, no text before the session
    is known, and an entry that reads one judges nothing."""
    places = places_of(observation, options.workspaces, options.configuration_directories)
    paths = produced_paths(observation, places, options.named, options.changed)
    files = [options.produced_file(path) for path in paths]
    left = tree_of(manifest_of(workspace), [workspace])
    before = None if baseline is None else tree_of(manifest_of(baseline), [baseline])
    artifacts = tuple(
        Artifact(
            file.path,
            UNPROVEN if before is None else side(before.state(file.path)),
            side(left.state(file.path)),
        )
        for file in files
        if is_artifact(file)
    )
    return artifact_findings(rules, artifacts, other_files(left))


def _workspace_tree(workspace: Path) -> Tree:
    return lambda uid: pack(workspace, uid, uid, prefix="workspace")


def _oracle_tree(oracle: Path, paths: Iterable[str], files: WorkspaceFiles, copies: Path) -> Tree:
    """One copy of a tree that holds everything produced: what is gone is taken out of it too."""
    changed: list[Placed] = []
    removed: list[bytes] = []
    for number, path in enumerate(paths):
        copy = copies / str(number)
        mode = files.copy(path, copy)
        if mode is None:
            removed.append(path.encode("utf-8", "surrogateescape"))
        else:
            changed.append(Placed(path.encode("utf-8", "surrogateescape"), mode, copy))
    return patched(oracle, changed=changed, removed=removed)
