"""Which version of the harness an image holds, by the harness's own word."""

from __future__ import annotations

import re
from collections.abc import Mapping

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.check import Program, run_program
from recorder.session.harness import HARNESS

_VERSION = re.compile(r"[0-9]+(\.[0-9]+)+[^\s]*")


def harness_version(engine: Engine, image: str, *, name: str, labels: Mapping[str, str]) -> str:
    """The first word of what ``--version`` prints. Refusal 3 where that is no version."""
    program = Program(argv=(HARNESS, "--version"), trees=(), seconds=60.0, output_limit=1 << 16)
    end = run_program(engine, image, program, name=name, labels=labels)
    words = end.stdout.decode("utf-8", "replace").split()
    if end.fault or end.exit_code != 0 or not words or not _VERSION.fullmatch(words[0]):
        raise Refusal(
            ExitCode.MISSING,
            f"{image}: its harness does not say its version "
            f"({end.fault or f'exit {end.exit_code}'}): run `recorder images build`",
        )
    return words[0]
