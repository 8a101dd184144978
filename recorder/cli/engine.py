"""Verbs that set up and look at what sessions run on: engine, images, doctor."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import docker.errors
import typer

from recorder.cli.session import credential_of_host
from recorder.engine import connect, doctor, rootless
from recorder.engine.client import open_engine
from recorder.images.build import IMAGE_NAMES, build_images, image_tag, list_images
from recorder.refusal import ExitCode, Refusal
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.self_check import self_check
from recorder.workspace.place import outside_home

engine = typer.Typer(help="The rootless engine that set-up starts.", no_args_is_help=True)
images = typer.Typer(help="The images sessions run from.", no_args_is_help=True)

REFUSED = (doctor.Level.MISSING, doctor.Level.MISPLACED, doctor.Level.UNCONFINED)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def register(app: typer.Typer) -> None:
    app.add_typer(engine, name="engine")
    app.add_typer(images, name="images")
    app.command("doctor")(examine)


def examine(
    out: Annotated[
        Path | None, typer.Option(help="Also examine a directory that is to take a batch.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say what this host can and cannot confine or enforce, each with its evidence.

    12 where a session could not be confined, 3 where something is missing, 6 for a directory
    where no batch may write.
    """
    gathered = doctor.gather()
    found = [
        *doctor.findings(gathered),
        _credential_finding(),
        *([] if out is None else [_place_finding(out)]),
        *_live_finding(gathered),
    ]
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "subject": finding.subject,
                        "level": finding.level.value,
                        "evidence": finding.evidence,
                        "remedy": finding.remedy,
                    }
                    for finding in found
                ]
            )
        )
    else:
        for finding in found:
            remedy = f" -> {finding.remedy}" if finding.remedy else ""
            print(f"{finding.level.value:10} {finding.subject}: {finding.evidence}{remedy}")
    code = doctor.exit_code(found)
    if code:
        raise Refusal(
            code,
            *(
                ": ".join(filter(None, (finding.subject, finding.evidence, finding.remedy)))
                for finding in found
                if finding.level in REFUSED
            ),
        )


def _credential_finding() -> doctor.Finding:
    try:
        credential = credential_of_host()
    except Refusal as refusal:
        # A broken file is the finding itself.
        reason = "; ".join(refusal.reasons)
        return doctor.Finding("credential", doctor.Level.MISSING, reason)
    if credential is None:
        return doctor.credential_finding(None, None, time.time())
    return doctor.credential_finding(credential.form, credential.expires_at, time.time())


def _place_finding(out: Path) -> doctor.Finding:
    there = next(path for path in (out.absolute(), *out.absolute().parents) if path.is_dir())
    free = shutil.disk_usage(there).free
    try:
        outside_home(out)
    except Refusal as refusal:
        # Where it lies is the finding itself; doctor's own exit code says it.
        return doctor.place_finding(str(out), "; ".join(refusal.reasons), free)
    return doctor.place_finding(str(out), None, free)


def _live_finding(gathered: doctor.Gathered) -> Iterator[doctor.Finding]:
    """The attack list in a container made as a session's is, where there are engine and image."""
    subject = "the attack list"
    if gathered.chosen is None or gathered.refusal:
        return
    api = open_engine(gathered.chosen.docker_host)
    try:
        image = api.image_id(image_tag("session"))
        if image is None:
            return
        labels = {DRIVER_LABEL: driver_identity()}
        checked = self_check(api, image, driver_name(), labels)
        yield doctor.Finding(
            subject,
            doctor.Level.OK,
            f"{len(checked.attempts)} attempts from inside a session container, 0 succeeded",
        )
    except Refusal as refusal:
        # What a session could do here is the finding itself; doctor's own exit code says it.
        for reason in refusal.reasons:
            yield doctor.Finding(subject, doctor.Level.UNCONFINED, reason, "see docs/security.md")
    except docker.errors.APIError as error:
        # The engine would not make or start a container as a session needs it.
        yield doctor.Finding(
            subject,
            doctor.Level.UNCONFINED,
            f"the engine made no session container: {error.explanation or error}",
            "use the engine of `recorder engine start`",
        )
    finally:
        api.close()


@engine.command("start")
def start() -> None:
    """Start our rootless engine, unless the user names another one; print its address."""
    chosen = connect.user_choice()
    if chosen is None:
        print(rootless.start().status.docker_host)
        return
    connect.connect(chosen.docker_host).close()
    print(chosen.docker_host)


@engine.command("stop")
def stop() -> None:
    """Stop our rootless engine, and only what was started for it."""
    print("stopped" if rootless.stop() else "was not running")


@engine.command("status")
def status(as_json: AsJson = False) -> None:
    """Say which engine is used and whether it answers (3 where none does)."""
    chosen = connect.user_choice()
    if chosen is None:
        ours = rootless.status()
        running, host, whose = ours.running, ours.docker_host, "recorder engine"
    else:
        running, host, whose = (
            rootless.answers(chosen.docker_host),
            chosen.docker_host,
            (chosen.origin),
        )
    if as_json:
        print(json.dumps({"running": running, "docker_host": host, "origin": whose}))
    else:
        print(f"{'running' if running else 'stopped'}: {host} ({whose})")
    if not running:
        raise Refusal(ExitCode.MISSING, f"no engine answers at {host}: run `recorder engine start`")


@images.command("build")
def build(
    names: Annotated[list[str] | None, typer.Argument(help="Some of them; default all.")] = None,
) -> None:
    """Build what is missing or out of date; no registry and no network in any build."""

    def show(line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    for image in build_images(connect.connect(), tuple(names or IMAGE_NAMES), show):
        print(f"{image.tag} {image.identifier} {image.size_bytes / 1e6:.0f} MB")


@images.command("list")
def show_images(as_json: AsJson = False) -> None:
    """List the images with their ids, sizes and labels; one that is missing is said to be."""
    states = list_images(connect.connect())
    if as_json:
        print(
            json.dumps(
                [
                    {
                        "tag": state.tag,
                        "id": state.identifier,
                        "bytes": state.size_bytes,
                        "labels": dict(state.labels),
                    }
                    for state in states
                ]
            )
        )
        return
    for state in states:
        what = (
            "missing: run `recorder images build`"
            if state.identifier is None
            else f"{state.identifier[:19]} {(state.size_bytes or 0) / 1e6:.0f} MB"
        )
        print(f"{state.tag} {what}")
