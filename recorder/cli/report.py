"""The verbs ``report`` and ``show``: a batch or a session for a person to look at."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from recorder.batch.table import print_table
from recorder.durable import write_durable
from recorder.refusal import ExitCode, Refusal
from recorder.report.comparison import comparison_view
from recorder.report.libraries import read_libraries
from recorder.report.page import comparison_page, fitted_page
from recorder.report.reading import is_batch, read_batch, read_one
from recorder.report.sides import read_side
from recorder.report.terminal import batch_group, session_group

REPORT = "report.html"
COMPARISON = "comparison.html"
COMPARISON_SCHEMA = "recorder.comparison/1"


def register(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("show")(show)


def report(
    directory: Annotated[
        Path | None, typer.Argument(help="A batch's directory, or one session's.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="The file to write; DIR/report.html without it, and comparison.html of a "
            "comparison."
        ),
    ] = None,
    compare: Annotated[
        tuple[str, str] | None,
        typer.Option(help="Two batches' directories, or DIR:ARM for one arm of one."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="What a comparison shows, for a program to read.")
    ] = False,
) -> None:
    """Write one HTML file that shows a batch, or two side by side with their differences."""
    if (directory is None) == (compare is None):
        raise Refusal(ExitCode.USAGE, "report: name one batch's directory, or two after --compare")
    if compare is not None:
        _compare(compare, out, as_json)
        return
    if directory is None or as_json:
        raise Refusal(ExitCode.USAGE, "report --json: prints a comparison: name two with --compare")
    libraries = read_libraries()
    text = fitted_page(read_batch(directory), libraries)
    path = directory / REPORT if out is None else out
    write_durable(path, text.encode())
    typer.echo(path)


def _compare(named: tuple[str, str], out: Path | None, as_json: bool) -> None:
    view = comparison_view(read_side(named[0], "A"), read_side(named[1], "B"))
    if as_json:
        record = {"schema": COMPARISON_SCHEMA, **msgspec.to_builtins(view)}
        text = json.dumps(record, indent=1) + "\n"
        if out is None:
            typer.echo(text, nl=False)
            return
    else:
        text = comparison_page(view, read_libraries())
        out = Path(COMPARISON) if out is None else out
    write_durable(out, text.encode())
    typer.echo(out)


def show(
    place: Annotated[
        Path, typer.Argument(help="A session's directory or one of its files, or a batch's.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Arguments and files to their end.")
    ] = False,
) -> None:
    """Print a session: how it ended and why, its timeline, egress and cost; or a whole batch."""
    if is_batch(place):
        print_table(batch_group(read_batch(place)))
    else:
        print_table(session_group(read_one(place), everything=everything))
