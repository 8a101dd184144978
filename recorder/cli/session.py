"""The verb ``record``: one session, from its probe to its record."""

from __future__ import annotations

import math
import os
import string
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import typer

from recorder.batch.assembly import read_session
from recorder.batch.batch import (
    held_session,
    image_id,
    prove_construction,
    refuse_used,
    require_model,
    source_of,
)
from recorder.batch.line import lay_line
from recorder.batch.recording import Job, Recorded, Setting
from recorder.batch.run import run_jobs
from recorder.batch.spec import LineSpec
from recorder.batch.table import print_table, session_table
from recorder.batch.tools import lister_on, refuse_leaking_tools
from recorder.engine.client import open_engine
from recorder.engine.connect import connect, docker_host, engine_facts
from recorder.plan.reading import read_plan_file
from recorder.refusal import ExitCode, Refusal
from recorder.session.container import SESSION_UID
from recorder.session.credentials import Choice, find_credential, require_lasting
from recorder.session.leftovers import (
    DRIVER_LABEL,
    collect_leftovers,
    driver_identity,
    driver_name,
    nothing_left,
    work_directory,
)
from recorder.session.sidecar import Credential
from recorder.workspace.place import outside_home, require_outside_corpus

CREDENTIALS_HELP = (
    "api-key, bearer, claude (its .credentials.json): sealed, the session gets a placeholder; "
    "copy: the file itself is copied in. Without it, the first that the host has."
)
DOLLARS_HELP = (
    "Once it has spent this, its sidecar lets no more of it out; the last answer may go over it."
)
NAME_LETTERS = frozenset(string.ascii_letters + string.digits + "._-")
NAME_LENGTH = 128


def register(app: typer.Typer) -> None:
    app.command("record")(record_session)


def credential_of_host(choice: Choice | None = None) -> Credential | None:
    """The host's credential, which goes to the sidecar and nowhere else; None where it has none."""
    directory = os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude"
    return find_credential(choice, os.environ, Path(directory))


def host_skills() -> frozenset[str]:
    """The names of the host's own skills: a session that shows one loaded the host's."""
    found: set[str] = set()
    for home in {os.environ.get("CLAUDE_CONFIG_DIR", ""), str(Path.home() / ".claude")}:
        directory = Path(home) / "skills"
        if home and directory.is_dir():
            found.update(entry.name for entry in directory.iterdir() if entry.is_dir())
    return frozenset(found)


def not_enforced() -> tuple[str, ...]:
    """The limits that the engine takes and does not hold, by its own word."""
    client = connect()
    try:
        facts = engine_facts(client)
    finally:
        client.close()
    return tuple(
        name
        for name, enforced in (
            ("memory", facts.enforces_memory),
            ("processes", facts.enforces_pids),
        )
        if not enforced
    )


def record_session(
    corpus: Annotated[Path, typer.Option(help="The tree the probe belongs to.")],
    probe: Annotated[str, typer.Option(help="The probe to run.")],
    session: Annotated[str, typer.Option(help="A name for this session.")],
    out: Annotated[Path, typer.Option(help="Where its files go: OUT/sessions/SESSION.")],
    tier: Annotated[str | None, typer.Option(help="regression, or the tier of --plan.")] = None,
    arm: Annotated[str, typer.Option()] = "present",
    model: Annotated[str | None, typer.Option(help="The model to ask for.")] = None,
    max_turns: Annotated[int | None, typer.Option(min=1)] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds before it is killed.")] = 1800.0,
    lock: Annotated[str | None, typer.Option(help="Taxonomy lock: a digest or a file.")] = None,
    seed: Annotated[int, typer.Option(min=0)] = 0,
    plan: Annotated[
        Path | None, typer.Option(help="The text of a plan to follow, instead of planning.")
    ] = None,
    plan_command: Annotated[
        str | None, typer.Option(help="An engine's command that plans: headwater probe plan.")
    ] = None,
    rehearse: Annotated[
        Path | None, typer.Option(help="A script that answers instead of the provider.")
    ] = None,
    credentials: Annotated[Choice | None, typer.Option(help=CREDENTIALS_HELP)] = None,
    session_dollars: Annotated[float | None, typer.Option(min=0.01, help=DOLLARS_HELP)] = None,
) -> None:
    """Record one session of a probe; its files say how, and what refused it if something did."""
    if not 0 < len(session) <= NAME_LENGTH or session[0] in ".-" or not {*session} <= NAME_LETTERS:
        raise Refusal(
            ExitCode.USAGE,
            f"--session {session!r}: use 1 to {NAME_LENGTH} letters, digits, dots, dashes and "
            "underscores, the first of them no dot and no dash",
        )
    for option, value in (("--timeout", timeout), ("--session-dollars", session_dollars)):
        if value is not None and not math.isfinite(value):
            raise Refusal(ExitCode.USAGE, f"{option} {value}: give a finite number")
    require_model(model, "--model")
    if plan is not None and (plan_command is not None or lock is not None or seed):
        raise Refusal(
            ExitCode.USAGE,
            "--plan fixes the lock and the seed: leave --plan-command, --lock and --seed out",
        )
    if tier is None:
        tier = "regression" if plan is None else read_plan_file(plan)[0].tier
    source = source_of(rehearse, None, credentials) if rehearse else None
    directory = out / "sessions" / session
    require_outside_corpus(out, corpus, "output directory")
    outside_home(out, "output directory")
    refuse_used(directory)
    recorded: list[Recorded] = []
    with work_directory() as work:
        laid = lay_line(
            corpus,
            LineSpec(tier=tier, arm=arm, plan=None if plan is None else str(plan)),
            work / "arm",
            seed=seed,
            lock=lock,
            max_turns=max_turns,
            plan_command=plan_command,
            probe=probe,
        )
        chosen = laid.task(probe)
        if source is not None:
            source.require_answers([probe])
        source = source or source_of(None, credential_of_host(credentials))
        require_lasting(source.credential, f"session {session}", seconds=timeout, now=time.time())
        engine = open_engine(docker_host())
        try:
            images = image_id(engine, "session"), image_id(engine, "proxy")
            collect_leftovers(engine)
            job = Job(
                line=laid.line,
                probe=probe,
                task=chosen.task,
                answers=chosen.answers or None,
                session=session,
                directory=directory.absolute(),
                uid=SESSION_UID,
            )
            labels = {DRIVER_LABEL: driver_identity()}
            with held_session(directory), nothing_left(engine):
                prove_construction(engine, images[0], out.absolute())
                refuse_leaking_tools([laid], lister_on(engine, images[0]))
                with source.upstream(engine, driver_name(), labels) as upstream:
                    setting = Setting(
                        session_image=images[0],
                        sidecar_image=images[1],
                        upstream=upstream,
                        credential_of=source.credential_of,
                        rehearsal=source.rehearsal is not None,
                        model=model,
                        timeout=timeout,
                        host_skills=host_skills(),
                        not_enforced=not_enforced(),
                        dollars=None if session_dollars is None else Decimal(str(session_dollars)),
                    )
                    run_jobs(
                        engine.docker_host,
                        [job],
                        setting,
                        parallel=1,
                        began=lambda _: None,
                        ended=recorded.append,
                        stop=threading.Event(),
                    )
        finally:
            engine.close()
    if recorded[0].refusal is not None:
        raise recorded[0].refusal
    print_table(session_table([(session, read_session(directory))]))
    print(directory / "record.md")
