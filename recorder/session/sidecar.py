"""One sidecar: started before its session, ended after it, its log taken before it goes.

The protocol is one JSON object on its standard input (the only way the credential goes in), then
JSON lines on its standard output; the standard input stays open as its lifeline.
"""

from __future__ import annotations

import json
import secrets
import selectors
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from requests.exceptions import RequestException

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import Attachment, attach
from recorder.session.container import EGRESS_LOG, sidecar_container
from recorder.session.frames import STDOUT
from recorder.session.harness import Form

READY_SECONDS = 30.0
END_SECONDS = 10.0
EGRESS_LIMIT = 256 << 20
# How the name ends of the volume that holds a sidecar's log.
EGRESS_VOLUME = "-egress"


@dataclass(frozen=True)
class Credential:
    """What the sidecar sends in the placeholder's place. ``value`` is never written anywhere.

    ``form`` is how a session holds its placeholder; ``file`` is what the session finds where the
    form is one. ``expires_at``: seconds since 1970, where that is known. ``copied``: the session
    gets the credential itself, and nothing is sealed.
    """

    kind: Literal["api_key", "bearer", "none"]
    value: str = field(repr=False)
    form: Form = "api-key"
    expires_at: float | None = None
    file: bytes | None = field(default=None, repr=False)
    copied: bool = False


@dataclass(frozen=True)
class Upstream:
    """Where a sidecar reaches the provider: a network of the engine, and whom it trusts there."""

    network: str
    certificate: str | None = None


@dataclass
class Sidecar:
    """A running sidecar. ``ready`` is what it said once its own refused canary was logged."""

    container: str
    attachment: Attachment
    socket_volume: str
    egress_volume: str
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    ready: Mapping[str, str] | None = None

    def absorb(self) -> None:
        """Take what it has written; call when its socket is readable."""
        for stream, piece in self.attachment.read():
            target = self.output if stream == STDOUT else self.errors
            target += piece
            del target[:-65536]


def start_sidecar(
    engine: Engine,
    *,
    name: str,
    image: str,
    labels: Mapping[str, str],
    upstream: Upstream,
    configuration: Mapping[str, object],
) -> Sidecar:
    """Create, attach and start a sidecar, and hand it its configuration; it is not ready yet."""
    # A volume's name stands in the session's mount table, where it must not name session or arm.
    unnamed = f"recorder-{secrets.token_hex(8)}"
    socket_volume, egress_volume = f"{unnamed}-socket", f"{unnamed}{EGRESS_VOLUME}"
    with ExitStack() as undo:
        for volume in (socket_volume, egress_volume):
            engine.create_volume(volume, labels)
            undo.callback(engine.remove_volume, volume)
        container = engine.create_container(
            f"{name}-sidecar",
            sidecar_container(image, labels, socket_volume, egress_volume, upstream.network),
        )
        undo.callback(engine.remove_container, container)
        attachment = attach(engine.docker_host, container)
        undo.callback(attachment.close)
        engine.start(container)
        attachment.send(json.dumps(configuration).encode() + b"\n")
        undo.pop_all()
    return Sidecar(container, attachment, socket_volume, egress_volume)


def wait_ready(sidecar: Sidecar) -> Mapping[str, str]:
    """What the ready sidecar said. Refusal 12 where it failed, ended or said nothing in time."""
    if sidecar.ready is not None:
        return sidecar.ready
    deadline = time.monotonic() + READY_SECONDS
    with selectors.DefaultSelector() as selector:
        selector.register(sidecar.attachment, selectors.EVENT_READ)
        while b"\n" not in sidecar.output:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _not_ready(sidecar, f"it said nothing for {READY_SECONDS:.0f} s")
            if sidecar.attachment.pending() or selector.select(left):
                sidecar.absorb()
            if sidecar.attachment.ended and b"\n" not in sidecar.output:
                raise _not_ready(sidecar, "it ended")
    line = bytes(sidecar.output).split(b"\n", 1)[0]
    try:
        said = json.loads(line)
        event = said["event"]
    except (ValueError, KeyError, TypeError) as error:
        raise _not_ready(sidecar, f"it said {line[:200]!r}") from error
    if event != "ready":
        raise _not_ready(sidecar, str(said.get("reason", "it failed")))
    sidecar.ready = {str(key): str(value) for key, value in said.items()}
    return sidecar.ready


def _not_ready(sidecar: Sidecar, why: str) -> Refusal:
    errors = " ".join(bytes(sidecar.errors[-400:]).decode("utf-8", "replace").split())
    said = f" (its standard error ends: {errors})" if errors else ""
    return Refusal(
        ExitCode.CONFINEMENT,
        f"the sidecar did not start: {why}{said}; run `recorder doctor`",
    )


def end_sidecar(engine: Engine, sidecar: Sidecar) -> bytes | None:
    """End its lifeline, wait for its closing line, and take its log; None where there is none."""
    sidecar.attachment.close()
    try:
        engine.wait(sidecar.container, END_SECONDS)
    except RequestException:
        # It outlived its lifeline: its log is taken as it stands, without a closing line, which
        # the log's reader names.
        engine.kill(sidecar.container)
    return engine.get_file(sidecar.container, EGRESS_LOG, EGRESS_LIMIT)


def remove_sidecar(engine: Engine, sidecar: Sidecar) -> None:
    sidecar.attachment.close()
    engine.remove_container(sidecar.container)
    engine.remove_volume(sidecar.socket_volume)
    engine.remove_volume(sidecar.egress_volume)
