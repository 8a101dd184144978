"""The verbs ``batch …``: many sessions under one plan."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from msgspec import structs
from rich.console import Console

from recorder.batch.batch import Source, require_model, source_of
from recorder.batch.batch_ledger import HEARTBEAT_SECONDS
from recorder.batch.canary import accept_canary
from recorder.batch.driving import Order, run_batch
from recorder.batch.dry_run import dry_run
from recorder.batch.given import given_of
from recorder.batch.pinned import Pinned
from recorder.batch.progress import Progress, picture, standard_error
from recorder.batch.rounds import Waits
from recorder.batch.spec import BatchSpec, read_spec
from recorder.batch.standing import named
from recorder.batch.status import Status, status_of
from recorder.batch.table import print_table, session_table, shown_rows, summary
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
from recorder.ledger.journal import Journal, read_state
from recorder.plain_file import decode, read_plain
from recorder.refusal import ExitCode, Interrupt, Refusal
from recorder.report.terminal import REHEARSAL
from recorder.report.visible import one_line
from recorder.session.credentials import Choice, require_lasting, warning_of
from recorder.session.leftovers import work_directory

Retry = Literal["failed"]
WATCH_SECONDS = 2.0

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
    parallel: Annotated[
        int | None,
        typer.Option(min=1, max=16, help="Sessions at once, in the place of the file's number."),
    ] = None,
    key: Annotated[
        str, typer.Option(help="The key that signs the batch; without one it is unsigned.")
    ] = DEFAULT_NAME,
    credentials: Annotated[Choice | None, typer.Option(help=CREDENTIALS_HELP)] = None,
    retry: Annotated[
        Retry | None, typer.Option(help="failed: record failed sessions again, at their own cost.")
    ] = None,
    max_sessions: Annotated[
        int | None,
        typer.Option(parser=positive, metavar="N", help="Start at most so many, then end with 15."),
    ] = None,
    cap_dollars: Annotated[
        float | None, typer.Option(help="What the batch may spend, in the place of its file's cap.")
    ] = None,
    canary: Annotated[
        int | None,
        typer.Option(
            parser=positive, metavar="N", help="Run so many alone, and wait for `batch accept`."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait", help="Wait for a limit or an outage to pass, and go on.")
    ] = False,
    stop_file: Annotated[
        Path | None,
        typer.Option(help="A file that, once it is there, stops new starts.  [default: OUT/stop]"),
    ] = None,
    heartbeat: Annotated[
        float,
        typer.Option(min=0, max=86_400, help="Seconds between the ledger's heartbeats; 0: none."),
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
    if cap_dollars is not None:
        if not (math.isfinite(cap_dollars) and cap_dollars > 0):
            raise typer.BadParameter(f"--cap-dollars {cap_dollars}: it is more than 0")
        read = structs.replace(read, caps=structs.replace(read.caps, batch_dollars=cap_dollars))
    source = _source(read, spec.parent, rehearse, wait=wait)
    progress = Progress(standard_error(), legible=one_line)

    def opened(journal: Journal) -> None:
        def status() -> Status:
            with journal.settled() as state:
                return status_of(state, time.time())

        progress.status = status

    def starting(sessions: int) -> None:
        seconds = math.ceil(sessions / read.parallel) * read.timeout_seconds
        warning = warning_of(source.credential, "the batch", seconds=seconds, now=time.time())
        if warning is not None:
            progress.said(warning)

    with progress.shown():
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
                stop_file=stop_file,
                max_sessions=max_sessions,
                canary=canary,
                waits=Waits(told=progress.waits) if wait else None,
                gently=True,
                opened=opened,
                began=progress.began,
                ended=progress.ended,
                starting=starting,
            ),
        )
    shown = shown_rows(report.rows)
    if shown:
        print_table(session_table(shown))
    for line in summary(report.totals, report.money):
        print(line)
    if source.rehearsal is not None:
        print("A rehearsal: a script answered, nothing was spent, and no rate may be read from it.")
    for transcript in report.transcripts:
        print(transcript)
    if private is not None:
        print(sign_batch(out.absolute(), private))
    if report.standing.code != ExitCode.DONE:
        raise Refusal(report.standing.code, *report.standing.reasons)


def _script(read: BatchSpec, beside: Path, rehearse: Path | None) -> Path | None:
    if rehearse is not None or read.rehearse is None:
        return rehearse
    return beside / read.rehearse


def _source(read: BatchSpec, beside: Path, rehearse: Path | None, *, wait: bool) -> Source:
    """Where a batch's answers come from: the script that was named, else the host's credential.

    With ``wait`` a credential that is about to expire is waited for, and does not refuse the batch.
    """
    script = _script(read, beside, rehearse)
    if script is not None:
        return source_of(script, None, read.credentials)
    source = source_of(None, credential_of_host(read.credentials))
    if not wait:
        require_lasting(
            source.credential, "the batch", seconds=read.timeout_seconds, now=time.time()
        )
    return replace(source, renew=lambda: credential_of_host(read.credentials))


@batch.command("status")
def status(
    directory: Annotated[Path, typer.Argument(help="The output directory of a batch.")],
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Show it until its driver has ended.")
    ] = False,
) -> None:
    """Say how a batch stands, from its ledger alone; nothing is written."""
    console = Console()
    notes = [REHEARSAL] if _rehearsed(directory) else []
    try:
        while True:
            found = _status(directory)
            if as_json:
                print(msgspec.json.encode(found).decode(), flush=watch)
            elif watch and console.is_terminal:
                console.clear()
                console.print(*notes, picture(found), sep="\n")
            else:
                print("\n".join([*notes, *map(one_line, found.said())]), flush=watch)
            if not watch or found.over:
                return
            time.sleep(WATCH_SECONDS)
    except Interrupt as interrupt:
        # Whoever stops looking stops nothing of the batch, and is not told so.
        raise typer.Exit(128 + interrupt.number) from interrupt


def _rehearsed(directory: Path) -> bool:
    """Whether a script answers. A batch.json that cannot be read says nothing of it here."""
    try:
        data = read_plain(directory / "batch.json")
        return decode(data, Pinned).rehearsal is not None
    except (OSError, msgspec.MsgspecError):
        return False


def _status(directory: Path) -> Status:
    state = read_state(directory)
    if state is None:
        raise Refusal(ExitCode.USAGE, f"{directory}: holds no ledger.jsonl: name a batch's --out")
    return status_of(state, time.time())


@batch.command("accept")
def accept(
    directory: Annotated[Path, typer.Argument(help="The output directory of a batch.")],
    reason: Annotated[str | None, typer.Option(help="Why, for the record.")] = None,
    failed: Annotated[
        bool, typer.Option("--failed", help="Also where sessions of the canary failed.")
    ] = False,
) -> None:
    """Accept the canary of a batch, so that the same `batch run` goes on with the rest."""
    accepted = accept_canary(directory, reason, failed=failed)
    print(f"accepted: {named(accepted)}; run the same `recorder batch run` again")


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
    rehearse: Annotated[
        Path | None, typer.Option(help="A script that would answer instead of the provider.")
    ] = None,
    tools: Annotated[
        bool, typer.Option("--tools", help="Ask MCP servers for their tools, in containers.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
) -> None:
    """Say what a batch would run, cost and leak, and what is wrong with it; nothing is spent.

    No engine is asked, unless --tools has it list what the MCP servers of each tree say.
    """
    read = read_spec(spec)
    require_model(read.model, "model", given_of(read).policy)
    script = _script(read, spec.parent, rehearse)
    source = None if script is None else source_of(script, None, read.credentials)
    with work_directory() as work:
        report = dry_run(
            read,
            spec.parent / read.corpus,
            work,
            max_sessions=max_sessions,
            repetitions=repetitions,
            lister=listed_on_an_engine if tools else None,
            answered=source.require_answers if source is not None else lambda _: None,
        )
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        for line in report.said():
            print(line)
    report.require_no_leak()
