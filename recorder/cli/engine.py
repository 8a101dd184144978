"""Verbs that set up and look at what sessions run on: engine, images, doctor."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from recorder.engine import connect, rootless
from recorder.images.build import IMAGE_NAMES, build_images, list_images
from recorder.refusal import ExitCode, Refusal

engine = typer.Typer(help="The rootless engine that set-up starts.", no_args_is_help=True)
images = typer.Typer(help="The images sessions run from.", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Machine-readable output.")]


def register(app: typer.Typer) -> None:
    app.add_typer(engine, name="engine")
    app.add_typer(images, name="images")


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
        running, host, whose = rootless.answers(chosen.docker_host), chosen.docker_host, (
            chosen.origin
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
