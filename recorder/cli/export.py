"""The verb ``export``: a batch or a session in the formats that other tools read. No engine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from recorder.audit.attempts import Selection, attempts
from recorder.audit.export import to_har
from recorder.audit.logs import read_logs
from recorder.cli.audit import refuse_faults
from recorder.durable import write_durable
from recorder.export.inspect_log import require_inspect, write_inspect_log
from recorder.export.junit import rule, to_junit
from recorder.export.reading import read_exported
from recorder.export.trajectory import trajectory_json
from recorder.refusal import ExitCode, Refusal
from recorder.report.reading import read_batch

Format = Literal["atif", "inspect", "har", "junit"]


def register(app: typer.Typer) -> None:
    app.command("export")(export)


def export(
    directory: Annotated[Path, typer.Argument(help="A batch's directory, or one session's.")],
    to: Annotated[
        Format,
        typer.Option(
            help="A trajectory a session (ATIF), an Inspect log, HAR 1.2 of the egress, or JUnit "
            "XML for a build server."
        ),
    ],
    session: Annotated[
        list[str] | None, typer.Option("--session", help="Only this session.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; standard output without it. Of several trajectories the "
            "directory, of an Inspect log a name that ends in .eval."
        ),
    ] = None,
) -> None:
    """Write a batch for another tool to read. No words of a model are in any of it."""
    only = tuple(session or ())
    match to:
        case "atif":
            _trajectories(directory, only, out)
        case "inspect":
            _inspect(directory, only, out)
        case "har":
            logs = read_logs(directory)
            refuse_faults(logs)
            _require_names(directory, only, [log.name for log in logs.sessions])
            selection = Selection(sessions=only)
            chosen = [each for each in attempts(logs.sessions) if selection.takes(each)]
            _write(to_har(chosen).encode(), out)
        case "junit":
            view = read_batch(directory)
            _require_names(directory, only, [each.name for each in view.sessions])
            _write(to_junit(view, only), out)


def _trajectories(directory: Path, only: Sequence[str], out: Path | None) -> None:
    sessions = read_exported(directory, only)
    whole = [each for each in sessions if each.event is not None]
    for each in sessions:
        if each.evidence.refusal is not None:
            why = rule(each.evidence.refusal.code)
            typer.echo(f"left out: {each.name} recorded no event ({why})", err=True)
    if not whole:
        raise Refusal(ExitCode.USAGE, f"{directory}: no session of it that is wanted has an event")
    if len(whole) == 1 and (out is None or not out.is_dir()):
        _write(trajectory_json(whole[0]), out)
        return
    if out is None:
        raise Refusal(
            ExitCode.USAGE,
            f"{directory}: holds {len(whole)} trajectories, a document each: name one with "
            "--session, or a directory with --out",
        )
    out.mkdir(parents=True, exist_ok=True)
    for each in whole:
        write_durable(out / f"{each.name}.json", trajectory_json(each))
    typer.echo(out)


def _inspect(directory: Path, only: Sequence[str], out: Path | None) -> None:
    require_inspect()
    if out is None or out.suffix != ".eval":
        raise Refusal(
            ExitCode.USAGE,
            "--out: an Inspect log is a file of its own: name one that ends in .eval",
        )
    sessions = read_exported(directory, only)
    repetitions = {each.name: each.repetition or 1 for each in read_batch(directory).sessions}
    write_inspect_log(directory.absolute().name, sessions, repetitions, out)
    typer.echo(out)


def _require_names(directory: Path, only: Sequence[str], known: Sequence[str]) -> None:
    for name in only:
        if name not in known:
            raise Refusal(ExitCode.USAGE, f"--session {name}: none of {directory} is named so")


def _write(data: bytes, out: Path | None) -> None:
    if out is None:
        typer.echo(data.decode(), nl=False)
    else:
        write_durable(out, data)
        typer.echo(out)
