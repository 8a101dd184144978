"""The verbs of a batch that need its files alone: ``batch assemble`` and ``batch reconcile``."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.table import Table

from recorder.batch.assembling import ASSEMBLED, assemble_batch
from recorder.batch.batch import held
from recorder.batch.reconcile import Decision, Uncertain, decide, uncertain
from recorder.batch.table import print_table
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.ledger.entries import Choice, Cost, Totals, Unknown
from recorder.refusal import ExitCode, Refusal
from recorder.session.leftovers import collect_leftovers

DIRECTORY_HELP = "The output directory of a batch."


def register(batch: typer.Typer) -> None:
    batch.command("assemble")(assemble)
    batch.command("reconcile")(reconcile)


def assemble(
    directory: Annotated[Path, typer.Argument(help=DIRECTORY_HELP)],
    out: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="Where to write; - prints.  [default: DIRECTORY/assembled]"
        ),
    ] = None,
) -> None:
    """Assemble the transcripts of a batch from its files alone; nothing is asked or run.

    A batch's directory that may only be read assembles to --out. The exit code says how the batch
    stands: a transcript of a line that is not whole is a draft.
    """
    if out is None:
        assemble_batch(directory)
        with held(directory):
            assembled = assemble_batch(directory)
            written = assembled.write(directory / ASSEMBLED)
    else:
        assembled = assemble_batch(directory)
        written = () if out == "-" else assembled.write(Path(out))
    if out == "-":
        for transcript in assembled.transcripts:
            if transcript.text is not None:
                typer.echo(transcript.text, nl=False)
    for path in written:
        typer.echo(path)
    totals = assembled.state.totals(len(assembled.rows))
    code = _code(totals)
    if code != ExitCode.DONE:
        raise Refusal(code, f"{directory}: {_standing(totals)}: what is assembled is a draft")


def _code(totals: Totals) -> ExitCode:
    """What a person has to decide goes before what another run would do by itself."""
    if totals.uncertain:
        return ExitCode.UNCERTAIN
    if totals.failed:
        return ExitCode.FAILED
    return ExitCode.LEFT if totals.remaining else ExitCode.DONE


def _standing(totals: Totals) -> str:
    counts = (
        (totals.recorded, "recorded"),
        (totals.failed, "failed to record"),
        (totals.uncertain, "wait for a decision"),
        (totals.remaining, "have yet to run"),
        (totals.left_out, "were left out"),
    )
    return ", ".join(f"{count} {what}" for count, what in counts if count)


def reconcile(
    directory: Annotated[Path, typer.Argument(help=DIRECTORY_HELP)],
    again: Annotated[
        list[str] | None,
        typer.Option("--again", metavar="SESSION", help="Run it again, at a cost of its own."),
    ] = None,
    leave_out: Annotated[
        list[str] | None,
        typer.Option("--leave-out", metavar="SESSION", help="Give it up; its cost stays."),
    ] = None,
    every: Annotated[
        Choice | None, typer.Option("--all", help="Decide so for every one that is not named.")
    ] = None,
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """List the sessions that may have spent and have no end, and decide what becomes of them."""
    names = [*(again or ()), *(leave_out or ())]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise Refusal(ExitCode.USAGE, f"{', '.join(twice)}: named twice: decide once")
    if not names and every is None:
        if reason is not None:
            raise Refusal(
                ExitCode.USAGE, "--reason without a decision: add --again, --leave-out or --all"
            )
        _listed(directory, uncertain(directory, collect_on_an_engine), as_json)
        return
    if reason is None:
        raise Refusal(ExitCode.USAGE, "a decision needs --reason TEXT: it stands in the ledger")
    chosen: dict[str, Choice] = dict.fromkeys(again or (), "again")
    chosen.update(dict.fromkeys(leave_out or (), "leave-out"))
    decision = Decision(chosen, every, reason)
    for each in decide(directory, decision, collect_on_an_engine):
        what = "runs again" if each.decision == "again" else "is left out"
        typer.echo(f"{each.session} attempt {each.attempt} {what}; it cost {_cost(each.cost)}")


def collect_on_an_engine(kept: Callable[[], None], batch: str) -> None:
    """Collect what dead drivers left on the engine that is set up here."""
    engine = open_engine(docker_host())
    try:
        collect_leftovers(engine, kept, batch)
    finally:
        engine.close()


def _listed(directory: Path, found: Sequence[Uncertain], as_json: bool) -> None:
    if as_json:
        document = {"schema": "recorder.uncertain/1", "sessions": found}
        typer.echo(msgspec.json.format(msgspec.json.encode(document), indent=2).decode())
        return
    if not found:
        typer.echo(f"{directory}: no session waits for a decision")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("session", no_wrap=True)
    for heading in ("attempt", "started", "requests", "cost", "log", "files"):
        table.add_column(heading)
    for each in found:
        table.add_row(
            each.session,
            str(each.attempt),
            datetime.datetime.fromtimestamp(each.started / 1000, datetime.UTC).isoformat(
                " ", "seconds"
            ),
            "unknown" if each.requests is None else str(each.requests),
            _cost(each.cost),
            "whole" if each.log_whole else "cut or missing",
            " ".join(each.files) or "none",
        )
    print_table(table)
    typer.echo(
        f"decide: recorder batch reconcile {directory} --again SESSION | --leave-out SESSION "
        "--reason TEXT"
    )


def _cost(cost: Cost) -> str:
    return (
        "unknown"
        if isinstance(cost, Unknown)
        else f"${cost.usd:.4f} ({type(cost).__name__.lower()})"
    )
