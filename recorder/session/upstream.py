"""Where the sidecars of one driver reach the provider.

For a measurement: a network of the engine's own, with a way out, whose containers cannot reach
each other. For a rehearsal: an ``internal`` network on which the rehearsal provider is the only
other container and answers to the provider's name. A sidecar cannot tell the two apart, and in a
rehearsal there is no route on which money could be spent.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.rehearsal.certificates import make_authority
from recorder.session.attach import attach
from recorder.session.frames import STDOUT
from recorder.session.sidecar import Upstream

PROVIDER_HOST = "api.anthropic.com"
PROVIDER_SECONDS = 20.0


@contextmanager
def provider_network(engine: Engine, name: str, labels: Mapping[str, str]) -> Iterator[Upstream]:
    """An ordinary network for this driver's sidecars; removed at the end."""
    network = f"{name}-out"
    engine.create_network(network, {**labels, "recorder.role": "network"}, internal=False)
    try:
        yield Upstream(network)
    finally:
        engine.remove_network(network)


@contextmanager
def rehearsal_network(
    engine: Engine, name: str, labels: Mapping[str, str], image: str, script: str
) -> Iterator[Upstream]:
    """An internal network with the rehearsal provider on it; both removed at the end.

    ``script`` is the YAML text of the rehearsal. Refusal 3 where the provider does not start.
    """
    network = f"{name}-rehearsal"
    authority = make_authority(PROVIDER_HOST)
    engine.create_network(network, {**labels, "recorder.role": "network"}, internal=True)
    container: str | None = None
    try:
        container = engine.create_container(
            f"{name}-provider",
            {
                "Image": image,
                "Entrypoint": ["/usr/bin/python3", "-m", "recorder.rehearsal"],
                "Cmd": [],
                "AttachStdin": True,
                "AttachStdout": True,
                "AttachStderr": True,
                "OpenStdin": True,
                "StdinOnce": True,
                "Labels": {**labels, "recorder.role": "provider"},
                "HostConfig": {
                    "NetworkMode": network,
                    "CapDrop": ["ALL"],
                    "CapAdd": ["NET_BIND_SERVICE"],
                    "SecurityOpt": ["no-new-privileges"],
                    "LogConfig": {"Type": "none", "Config": {}},
                },
                "NetworkingConfig": {"EndpointsConfig": {network: {"Aliases": [PROVIDER_HOST]}}},
            },
        )
        with attach(engine.docker_host, container) as attachment:
            engine.start(container)
            configuration = {
                "certificate": authority.certificate_pem,
                "key": authority.key_pem,
                "script": script,
            }
            attachment.send(json.dumps(configuration).encode() + b"\n")
            said, errors = bytearray(), bytearray()
            deadline = time.monotonic() + PROVIDER_SECONDS
            with selectors.DefaultSelector() as selector:
                selector.register(attachment, selectors.EVENT_READ)
                while b"\n" not in said and not attachment.ended and time.monotonic() < deadline:
                    if attachment.pending() or selector.select(0.5):
                        for stream, piece in attachment.read():
                            target = said if stream == STDOUT else errors
                            target += piece
            if b'"ready"' not in said:
                words = " ".join((said + errors)[-400:].decode("utf-8", "replace").split())
                raise Refusal(
                    ExitCode.MISSING, f"the rehearsal provider did not start: {words or 'no word'}"
                )
            yield Upstream(network, authority.ca_pem)
    finally:
        if container is not None:
            engine.remove_container(container)
        engine.remove_network(network)
