"""Proves the construction on this very engine before anything is recorded on it.

A probe container is made as a session's is, and a stand-in runs in the harness's place: an
execute-only copy of the interpreter, which starts the attack list as a harness starts a Bash
call and passes on what it printed. One attempt that succeeds refuses every session (12).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import msgspec

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import attach
from recorder.session.container import Limits, session_container
from recorder.session.driver import control_files, refuse_loose_construction
from recorder.session.frames import STDOUT
from recorder.session.harness import HARNESS, environment
from recorder.session.harness_digest import harness_digest

STAND_IN = "/opt/harness/python-harness"
ATTACK = "/opt/recorder/attack.py"
MARKER = b"by-the-attack-list"
OWN_FILES = ("/opt/recorder/guard.py", "/opt/recorder/forwarder.py")
OWN_FILE_BYTES = 1 << 20
SECONDS = 30.0

# The stand-in gives the attack list a pipe of its own and prints it as one line, as a harness
# prints a tool's result. The marker in the stream itself, outside of that line, is a forgery.
_PROGRAM = f"""
import subprocess
found = subprocess.run(["/usr/bin/python3", "-I", "-S", "{ATTACK}", "{STAND_IN}"],
    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout
print(found.decode("utf-8", "replace").encode("unicode_escape").decode("ascii"), flush=True)
"""


class Attempt(msgspec.Struct, frozen=True):
    """One attempt of the attack list. ``open``: it succeeded."""

    attempt: str
    open: bool
    detail: str


@dataclass(frozen=True)
class SelfCheck:
    """The attack list's result in a container made as a session's is.

    ``files``: the digest of each file that is run there, by its path: ours, and the harness.
    """

    attempts: tuple[Attempt, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def opened(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.open)


def self_check(
    engine: Engine, image: str, name: str, labels: Mapping[str, str], limits: Limits | None = None
) -> SelfCheck:
    """Run the attack list. Refusal 12 where it could not be run, or an attempt succeeded."""
    volume = f"{name}-check"
    engine.create_volume(volume, labels)
    container: str | None = None
    try:
        container = engine.create_container(
            f"{name}-check",
            session_container(
                image, {**labels, "recorder.role": "check"}, volume, limits or Limits()
            ),
        )
        engine.put(
            container,
            "/",
            control_files(
                argv=(STAND_IN, "-I", "-S", "-c", _PROGRAM),
                environment=environment(),
                uid=1000,
                certificate="",
                placeholder="",
            ),
        )
        refuse_loose_construction(engine.inspect(container))
        output = bytearray()
        with attach(engine.docker_host, container, SECONDS) as attachment:
            engine.start(container)
            while not attachment.ended:
                for stream, piece in attachment.read():
                    if stream == STDOUT:
                        output += piece
        files = {path: _digest(engine, container, path) for path in OWN_FILES}
        files[HARNESS] = harness_digest(engine, container, image)
    except TimeoutError as error:
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"the attack list did not end within {SECONDS:.0f} s on this engine: run "
            "`recorder doctor`",
        ) from error
    finally:
        if container is not None:
            engine.remove_container(container)
        engine.remove_volume(volume)
    return replace(_read(bytes(output)), files=files)


def _digest(engine: Engine, container: str, path: str) -> str:
    content = engine.get_file(container, path, OWN_FILE_BYTES)
    if content is None:
        raise Refusal(ExitCode.CONFINEMENT, f"{path}: is not in the session image: build it again")
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _read(output: bytes) -> SelfCheck:
    """The result in the stand-in's one line. Refusal 12 for anything else in the stream."""
    line, _, rest = output.partition(b"\n")
    try:
        text = line.decode("ascii").encode("ascii").decode("unicode_escape")
        attempts = tuple(
            msgspec.convert(json.loads(entry), Attempt) for entry in text.splitlines() if entry
        )
    except (ValueError, msgspec.ValidationError) as error:
        raise Refusal(
            ExitCode.CONFINEMENT,
            f"the attack list could not be run or the stream was forged: {line[:200]!r}",
        ) from error
    if rest or MARKER in output or not attempts:
        raise Refusal(
            ExitCode.CONFINEMENT, "the attack list wrote into the recorded stream of this engine"
        )
    checked = SelfCheck(attempts)
    if checked.opened:
        raise Refusal(
            ExitCode.CONFINEMENT,
            *(
                f"a session on this engine could {attempt.attempt}: {attempt.detail}"
                for attempt in checked.opened
            ),
        )
    return checked
