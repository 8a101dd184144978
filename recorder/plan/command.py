"""Asking another engine for a plan, where the user has one: its command, its text."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

from recorder.refusal import ExitCode, Refusal

PLAN_SECONDS = 600.0
ERROR_LINES = 20


def plan_arguments(
    *,
    tier: str,
    category: str | None = None,
    exclude: Sequence[str] = (),
    repetitions: int | None = None,
    seed: int = 0,
) -> tuple[str, ...]:
    """What narrows a plan, as the arguments of ``headwater probe plan``."""
    arguments = ["--tier", tier]
    if category is not None:
        arguments += ["--category", category]
    for identifier in exclude:
        arguments += ["--exclude", identifier]
    if repetitions is not None:
        arguments += ["--repetitions", str(repetitions)]
    if seed:
        arguments += ["--seed", str(seed)]
    return tuple(arguments)


def ask_plan(command: str, arguments: Sequence[str], corpus: Path) -> str:
    """Run a plan command in the corpus and return what it prints.

    Refuses (2) a command that is no list of words, (3) one that is not there, (5) one that fails
    or prints no text, with what it says on standard error.
    """
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise Refusal(ExitCode.USAGE, f"--plan-command {command!r}: {error}") from error
    if not words:
        raise Refusal(ExitCode.USAGE, "--plan-command is empty: name the command that plans")
    try:
        ended = subprocess.run(
            [*words, *arguments],
            cwd=corpus,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PLAN_SECONDS,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        raise Refusal(
            ExitCode.MISSING,
            f"{words[0]}: cannot be run ({error.strerror}); install the engine that plans, or "
            "leave --plan-command out and plan natively",
        ) from error
    except subprocess.TimeoutExpired as error:
        raise Refusal(
            ExitCode.PLAN, f"{command}: was killed after {PLAN_SECONDS:.0f} s without a plan"
        ) from error
    if ended.returncode != 0:
        said = ended.stderr.decode("utf-8", "replace").splitlines()
        raise Refusal(
            ExitCode.PLAN,
            f"{command}: ended with {ended.returncode} and made no plan",
            *(f"{words[0]}: {line}" for line in said[-ERROR_LINES:] if line.strip()),
        )
    try:
        return ended.stdout.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Refusal(ExitCode.PLAN, f"{command}: prints what is not UTF-8") from error
