"""The live construction, once for the whole folder: containers take half a second each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from tests.proxy.construction import (
    Agent,
    Provider,
    RunningSidecar,
    agent,
    configuration,
    network,
    provider,
    sidecar,
)


@dataclass
class Construction:
    """A sidecar with its provider and the session's place, and what makes more of them."""

    engine: Engine
    name: str
    network: str
    provider: Provider
    sidecar: RunningSidecar
    agent: Agent


@pytest.fixture(scope="package")
def construction() -> Iterator[Construction]:
    engine = open_engine(docker_host())
    name = f"recorder-check-{secrets.token_hex(4)}"
    try:
        with (
            network(engine, f"{name}-network") as on,
            provider(engine, f"{name}-provider", on) as behind,
            sidecar(engine, f"{name}-sidecar", on, configuration(behind.certificate)) as beside,
        ):
            assert beside.said is not None, bytes(beside.lines.errors)
            assert beside.said["event"] == "ready", beside.said
            with agent(engine, f"{name}-agent", f"{name}-sidecar-socket") as inside:
                yield Construction(engine, name, on, behind, beside, inside)
    finally:
        engine.close()
