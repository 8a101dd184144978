"""The verbs ``report`` and ``show``: a batch or a session for a person to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from recorder.report.libraries import read_libraries
from recorder.report.page import fitted_page
from recorder.report.reading import is_batch, read_batch, read_one
from recorder.report.terminal import batch_group, session_group
from recorder.session.driver import write_durable

REPORT = "report.html"


def register(app: typer.Typer) -> None:
    app.command("report")(report)
    app.command("show")(show)


def report(
    directory: Annotated[Path, typer.Argument(help="A batch's directory, or one session's.")],
    out: Annotated[
        Path | None, typer.Option(help="The file to write; DIR/report.html without it.")
    ] = None,
) -> None:
    """Write one HTML file that shows a batch: rates, egress, costs, and a page a session."""
    libraries = read_libraries()
    text = fitted_page(read_batch(directory), libraries)
    path = directory / REPORT if out is None else out
    write_durable(path, text.encode())
    typer.echo(path)


def show(
    place: Annotated[
        Path, typer.Argument(help="A session's directory or one of its files, or a batch's.")
    ],
    everything: Annotated[
        bool, typer.Option("--all", help="Arguments and files to their end.")
    ] = False,
) -> None:
    """Print a session: how it ended and why, its timeline, egress and cost; or a whole batch."""
    console = Console(soft_wrap=False)
    if not console.is_terminal:
        console = Console(width=160)
    if is_batch(place):
        console.print(batch_group(read_batch(place)))
    else:
        console.print(session_group(read_one(place), everything=everything))
