"""The command ``recorder``: verbs are registered here, and every error becomes one line."""

from __future__ import annotations

import errno
import os
import signal
import sys
from types import FrameType

import docker.errors
import requests.exceptions
import typer

from recorder import __version__
from recorder.cli import (
    audit,
    batch,
    batch_files,
    engine,
    evidence,
    export,
    judge,
    plan,
    report,
    session,
    stream,
    transform,
)
from recorder.refusal import ExitCode, Interrupt, Refusal
from recorder.report.visible import one_line

app = typer.Typer(
    name="recorder",
    help="Drives coding-agent sessions, watches each from outside, writes what it saw.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
session.register(app)
transform.register(app)
stream.register(app)
plan.register(app)
engine.register(app)
batch.register(app)
batch_files.register(batch.batch)
audit.register(app)
judge.register(app)
report.register(app)
evidence.register(app)
export.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"recorder {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", help="Print the version.", callback=_version, is_eager=True
    ),
) -> None:
    """Shared options; each verb has its own help."""


def say(code: int, *reasons: str) -> int:
    """One line a reason on standard error, and the exit code.

    A reason names what a corpus or a session wrote: no character of it moves a cursor.
    """
    for reason in reasons:
        print(f"recorder: {one_line(' '.join(reason.split()))}", file=sys.stderr)
    return int(code)


def interrupt_on_signals() -> None:
    """Ctrl-C, SIGTERM and SIGHUP end a verb in order: sessions end, what they left is kept.

    The first one alone: a second would break into the orderly end. A signal that the caller
    ignores (nohup, a shell's background job) stays ignored.
    """
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]

    def interrupt(number: int, _: FrameType | None) -> None:
        for other in numbers:
            signal.signal(other, signal.SIG_IGN)
        raise Interrupt(number)

    for number in numbers:
        signal.signal(number, interrupt)


def main() -> int:
    """Run the command line; the exit code says which one cause ended it."""
    interrupt_on_signals()
    try:
        app()
    except Refusal as refusal:
        return say(refusal.code, *refusal.reasons)
    except SystemExit as end:
        # How the command-line library ends a verb: 0, 2 for a usage error, or a verb's own code.
        return end.code if isinstance(end.code, int) else ExitCode.DONE
    except Interrupt as interrupt:
        return say(
            128 + interrupt.number,
            f"interrupted by {signal.Signals(interrupt.number).name}: nothing runs any more, and "
            "what its sessions left is kept",
        )
    except docker.errors.DockerException as error:
        return say(
            ExitCode.MISSING,
            f"the engine refused: {error}: see `recorder engine status` and `recorder doctor`",
        )
    except requests.exceptions.RequestException as error:
        return say(
            ExitCode.MISSING,
            f"the engine stopped answering ({type(error).__name__}): see `recorder engine status`",
        )
    except BrokenPipeError:
        # Whoever read the output closed it: nothing is left to say, and Python must not try to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return say(
                ExitCode.CAP,
                f"{error.filename or 'the output directory'}: the disk is full: free some and run "
                "the same command again",
            )
        if error.filename is None:
            # No file's: a connection's, or one that the system had no resources for.
            why = error.strerror or str(error) or type(error).__name__
            return say(
                ExitCode.MISSING,
                f"the system or the engine failed a call ({why}): see `recorder engine status`, "
                "and run the same command again",
            )
        return say(ExitCode.USAGE, f"{error.filename}: {error.strerror}")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
