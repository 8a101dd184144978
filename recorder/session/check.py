"""Runs a program over trees in a container of its own: the check behind findings, a tool lister.

A check reads files that a session wrote, so it runs confined as a session is (guard, its uid, no
network, no capability) and with less: no way out at all, no credential, a deadline, a cap on what
it prints. Its own code comes from the baseline, which no session could write.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from docker.errors import APIError
from requests.exceptions import RequestException

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import attach
from recorder.session.container import SESSION_UID, Limits, session_container
from recorder.session.driver import (
    END_SECONDS,
    OUTCOME_FILE,
    OUTCOME_LIMIT,
    control_files,
    read_outcome,
    refuse_loose_construction,
)
from recorder.session.frames import STDOUT, FrameError
from recorder.session.harness import CONFIGURATION_DIRECTORY

BASELINE = "/baseline"
STDERR_LIMIT = 1 << 16

Tree = Callable[[int], Iterable[bytes]]
"""A tar stream whose names lie under ``workspace/`` or ``baseline/``, its owner the given uid."""


@dataclass(frozen=True, kw_only=True)
class Program:
    """What to run. ``trees`` are laid in this order, a later one over an earlier.

    ``directory`` is where it starts: the root by default, so that no relative path of ``argv``
    is one of a tree that a session wrote. ``seconds`` bound its whole run, ``output_limit`` (in
    bytes) what it may print.
    """

    argv: tuple[str, ...]
    trees: tuple[Tree, ...]
    directory: str = "/"
    environment: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 120.0
    output_limit: int = 16 << 20


@dataclass(frozen=True)
class ProgramEnd:
    """How a program ended. ``exit_code`` is None where it did not run, or not to its own end.

    ``fault`` says why what it printed is not to be used; it is empty where nothing speaks against
    that, whatever the exit code.
    """

    exit_code: int | None
    timed_out: bool
    stdout: bytes
    stderr: bytes
    fault: str


def environment_of_a_check() -> dict[str, str]:
    """The whole environment, less than a session's: neither a proxy nor a credential's place."""
    return {
        "HOME": CONFIGURATION_DIRECTORY,
        "LANG": "C.UTF-8",
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",
        "SHELL": "/bin/bash",
        "TERM": "dumb",
        "TZ": "UTC",
        "USER": "session",
    }


def run_program(
    engine: Engine,
    image: str,
    program: Program,
    *,
    name: str,
    labels: Mapping[str, str],
    uid: int = SESSION_UID,
    limits: Limits | None = None,
) -> ProgramEnd:
    """Run a program to its end or its deadline; its container is gone when this returns.

    Refusal 12 where the engine made a looser container than was asked for.
    """
    container = engine.create_container(
        f"{name}-check",
        session_container(image, {**labels, "recorder.role": "check"}, None, limits or Limits()),
    )
    try:
        try:
            for tree in program.trees:
                engine.put(container, "/", tree(uid))
        except APIError as error:
            # A path that cannot be there, such as a file below a link of the tree it is put into.
            return ProgramEnd(None, False, b"", b"", f"its trees could not be laid: {error}")
        engine.put(
            container,
            "/",
            control_files(
                argv=program.argv,
                environment={**environment_of_a_check(), **program.environment},
                uid=uid,
                certificate="",
                placeholder="",
                directory=program.directory,
            ),
        )
        refuse_loose_construction(engine.inspect(container))
        return _run(engine, container, program)
    finally:
        engine.remove_container(container)


def _run(engine: Engine, container: str, program: Program) -> ProgramEnd:
    stdout, stderr = bytearray(), bytearray()
    stopped = ""
    timed_out = False
    with attach(engine.docker_host, container) as attachment:
        engine.start(container)
        deadline = time.monotonic() + program.seconds
        try:
            while not attachment.ended and not stopped:
                attachment.connection.settimeout(max(deadline - time.monotonic(), 0.001))
                for stream, piece in attachment.read():
                    if stream == STDOUT:
                        stdout += piece
                    elif len(stderr) < STDERR_LIMIT:
                        stderr += piece[: STDERR_LIMIT - len(stderr)]
                if len(stdout) > program.output_limit:
                    stopped = f"it printed more than {program.output_limit} bytes"
                elif time.monotonic() >= deadline and not attachment.ended:
                    raise TimeoutError
        except TimeoutError:
            # Its deadline, by the socket's clock or by ours: it is killed, and that is its end.
            timed_out, stopped = True, f"it did not end within {program.seconds:g} s"
        except FrameError as error:
            stopped = f"its output broke off: {error}"
        if stopped:
            engine.kill(container)
            return ProgramEnd(None, timed_out, bytes(stdout), bytes(stderr), stopped)
    try:
        engine.wait(container, END_SECONDS)
    except RequestException:
        # It closed its output and did not end, so nothing says what it would have ended with.
        engine.kill(container)
        fault = f"it closed its output and did not end within {END_SECONDS:g} s"
        return ProgramEnd(None, True, bytes(stdout), bytes(stderr), fault)
    outcome = read_outcome(engine.get_file(container, OUTCOME_FILE, OUTCOME_LIMIT)) or {}
    if outcome.get("stage") != "harness":
        reason = outcome.get("reason") or _tail(stderr) or "its guard left no outcome"
        return ProgramEnd(None, False, bytes(stdout), bytes(stderr), f"it was not run: {reason}")
    status = int(outcome["exit"])
    fault = f"it was ended by signal {-status}" if status < 0 else ""
    return ProgramEnd(None if fault else status, False, bytes(stdout), bytes(stderr), fault)


def _tail(stderr: bytes | bytearray) -> str:
    return " ".join(bytes(stderr[-400:]).decode("utf-8", "replace").split())


def could_not_run(what: str, end: ProgramEnd, fault: str) -> Refusal:
    """Refusal 13 of a check whose output is no result: what was checked is then not known."""
    said = _tail(end.stderr)
    ending = f" (its standard error ends: {said})" if said else ""
    return Refusal(
        ExitCode.OBSERVATION,
        f"{what}: {fault}{ending}; so nothing is known of what it would have reported",
    )
