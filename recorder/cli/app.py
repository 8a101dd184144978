"""The command ``recorder``: verbs are registered here, and every error becomes one line."""

from __future__ import annotations

import errno
import os
import signal
import sys

import docker.errors
import requests.exceptions
import typer

from recorder import __version__
from recorder.cli import batch, engine, plan, session, stream
from recorder.refusal import ExitCode, Refusal

app = typer.Typer(
    name="recorder",
    help="Drives coding-agent sessions, watches each from outside, writes what it saw.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
session.register(app)
stream.register(app)
plan.register(app)
engine.register(app)
batch.register(app)


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
    """One line a reason on standard error, and the exit code."""
    for reason in reasons:
        print(f"recorder: {' '.join(reason.split())}", file=sys.stderr)
    return int(code)


def main() -> int:
    """Run the command line; the exit code says which one cause ended it."""
    try:
        app()
    except Refusal as refusal:
        return say(refusal.code, *refusal.reasons)
    except SystemExit as end:
        # How the command-line library ends a verb: 0, 2 for a usage error, or a verb's own code.
        return end.code if isinstance(end.code, int) else ExitCode.DONE
    except KeyboardInterrupt as interrupt:
        number = signal.Signals(interrupt.args[0] if interrupt.args else signal.SIGINT)
        return say(
            128 + number,
            f"interrupted by {number.name}: nothing runs any more, and what its sessions left is "
            "kept",
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
            raise
        return say(ExitCode.USAGE, f"{error.filename}: {error.strerror}")
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
