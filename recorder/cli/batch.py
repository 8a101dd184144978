"""The verbs ``batch …``: many sessions under one plan."""

from __future__ import annotations

import math
import sys
import threading
import time
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from msgspec import structs
from rich.console import Console

from recorder.batch.batch import source_of
from recorder.batch.batch_ledger import HEARTBEAT_SECONDS
from recorder.batch.driving import Order, run_batch
from recorder.batch.dry_run import dry_run
from recorder.batch.recording import Job, Recorded
from recorder.batch.spec import read_spec
from recorder.batch.table import print_table, session_table
from recorder.cli.numbers import positive
from recorder.cli.plan import listed_on_an_engine
from recorder.cli.session import (
    CREDENTIALS_HELP,
    credential_of_host,
    host_skills,
    not_enforced,
)
from recorder.engine.connect import docker_host
from recorder.evidence.signing_batch import sign_batch
from recorder.evidence.signing_keys import DEFAULT_NAME, key_directory, own_key
from recorder.refusal import ExitCode, Refusal
from recorder.session.credentials import Choice, require_lasting, warning_of
from recorder.session.leftovers import work_directory

Retry = Literal["failed"]

batch = typer.Typer(help="Many sessions under one plan.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.add_typer(batch, name="batch")


@batch.callback()
def _batch() -> None:
    """Many sessions under one plan."""


@batch.command("run")
def run(
    spec: Annotated[Path, typer.Argument(help="The batch file.")],
    out: Annotated[Path, typer.Option(help="The output directory, outside corpus and home.")],
    rehearse: Annotated[
        Path | None, typer.Option(help="A script that answers instead of the provider.")
    ] = None,
    parallel: Annotated[int | None, typer.Option(min=1, max=16)] = None,
    key: Annotated[
        str, typer.Option(help="The key that signs the batch; without one it is unsigned.")
    ] = DEFAULT_NAME,
    credentials: Annotated[Choice | None, typer.Option(help=CREDENTIALS_HELP)] = None,
    retry: Annotated[
        Retry | None, typer.Option(help="failed: record failed sessions again, at their own cost.")
    ] = None,
    heartbeat: Annotated[
        float, typer.Option(min=0, help="Seconds between the ledger's heartbeats; 0: none.")
    ] = HEARTBEAT_SECONDS,
) -> None:
    """Record the sessions of a batch that are missing, and assemble what is whole."""
    private = own_key(key_directory(), key)
    if private is None and key != DEFAULT_NAME:
        raise Refusal(
            ExitCode.MISSING,
            f"{key_directory()}: holds no key {key}: make one with `recorder key new --name {key}`",
        )
    read = read_spec(spec)
    if parallel is not None:
        read = structs.replace(read, parallel=parallel)
    if credentials is not None:
        read = structs.replace(read, credentials=credentials)
    script = rehearse
    if script is None and read.rehearse is not None:
        script = spec.parent / read.rehearse
    if script is None:
        source = source_of(None, credential_of_host(read.credentials))
        require_lasting(
            source.credential, "the batch", seconds=read.timeout_seconds, now=time.time()
        )
    else:
        source = source_of(script, None, read.credentials)
    console = Console(stderr=True)
    started = time.monotonic()

    def began(job: Job) -> None:
        console.print(f"{time.monotonic() - started:6.1f} s  {job.session}", highlight=False)

    def ended(recorded: Recorded, done: int, total: int) -> None:
        end = "recorded" if recorded.refusal is None else f"exit {int(recorded.refusal.code)}"
        console.print(
            f"{time.monotonic() - started:6.1f} s  {recorded.job.session}  {end}  {done}/{total}",
            highlight=False,
        )
        for reason in recorded.refusal.reasons if recorded.refusal else ():
            print(f"recorder: {reason}", file=sys.stderr)

    def starting(sessions: int) -> None:
        seconds = math.ceil(sessions / read.parallel) * read.timeout_seconds
        warning = warning_of(source.credential, "the batch", seconds=seconds, now=time.time())
        if warning is not None:
            print(f"recorder: {warning}", file=sys.stderr)

    report = run_batch(
        read,
        spec.parent / read.corpus,
        out.absolute(),
        source,
        docker_host,
        not_enforced=not_enforced,
        host_skills=host_skills(),
        order=Order(
            stop=threading.Event(),
            retry_failed=retry is not None,
            heartbeat=heartbeat,
            began=began,
            ended=ended,
            starting=starting,
        ),
    )
    print_table(session_table(report.rows))
    if source.rehearsal is not None:
        print("A rehearsal: a script answered, nothing was spent, and no rate may be read from it.")
    for transcript in report.transcripts:
        print(transcript)
    if private is not None:
        print(sign_batch(out.absolute(), private))
    if report.failed:
        failed = [name for name, kept in report.rows if kept is not None and kept.event is None]
        raise Refusal(
            ExitCode.FAILED,
            f"{report.failed} of {len(report.rows)} sessions failed to record: "
            f"{', '.join(failed)}: {out}/sessions/NAME/evidence.json says why; to record them "
            "again run the same batch with --retry failed",
        )


@batch.command("plan")
def plan(
    spec: Annotated[Path, typer.Argument(help="The batch file.")],
    max_sessions: Annotated[
        int | None,
        typer.Option(parser=positive, metavar="N", help="Say in how many slices it would run."),
    ] = None,
    repetitions: Annotated[
        int | None,
        typer.Option(parser=positive, metavar="N", help="Price every line with this many."),
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Ask MCP servers for their tools, in containers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json")] = False,
) -> None:
    """Say what a batch would run, cost and leak; nothing is spent.

    No engine is asked, unless --tools has it list what the MCP servers of each tree say.
    """
    read = read_spec(spec)
    with work_directory() as work:
        report = dry_run(
            read,
            spec.parent / read.corpus,
            work,
            max_sessions=max_sessions,
            repetitions=repetitions,
            lister=listed_on_an_engine if tools else None,
        )
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        for line in report.said():
            print(line)
    report.require_no_leak()
