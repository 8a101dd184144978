"""The same as ``test_crash`` with containers, the real harness and every call of the engine."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from recorder.batch.batch import Source
from recorder.batch.engine_host import EngineHost
from recorder.batch.given import given_of
from recorder.batch.runner import Host
from recorder.batch.spec import BatchSpec
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_name
from recorder.session.sidecar import Credential, Upstream
from tests.batch.crash import SESSIONS, driven, survive
from tests.batch.test_crash import decide
from tests.evidence.scenarios import extended_script
from tests.evidence.scripted import ScriptedProvider, scripted_provider

KEY = "sk-ant-api03-"

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@dataclass(frozen=True)
class ScriptedSource(Source):
    """The provider's place is taken by one that lasts, so a session may have spent for good."""

    reached_at: Upstream = field(kw_only=True)
    world: str = field(kw_only=True)

    def credential_of(self, _: str, session: str) -> Credential:
        return Credential("api_key", f"{KEY}{self.world}.{session}-fake-final_only")

    @contextmanager
    def upstream(self, *_: object) -> Iterator[Upstream]:
        yield self.reached_at


@dataclass(frozen=True)
class ContainerWorld:
    """Drivers on one engine, whose sessions ask ``provider`` under the name of this world."""

    name: str
    engine_at: str
    provider: str
    upstream: Upstream

    def host(self, spec: BatchSpec) -> tuple[Source, Host]:
        source = ScriptedSource(
            None, Credential("api_key", f"{KEY}none"), reached_at=self.upstream, world=self.name
        )
        return source, EngineHost(
            lambda: self.engine_at, spec, source, tuple, frozenset(), given_of(spec)
        )

    def watched(self) -> Sequence[Path]:
        return ()

    def asked(self) -> Mapping[str, Sequence[str]]:
        """By the provider's own log, in which each harness has an id of its own."""
        found: dict[str, dict[str, None]] = {}
        with self._engine() as engine:
            log = ScriptedProvider(engine, self.provider, self.upstream).log()
        for request in log:
            sent = request["headers"]
            assert isinstance(sent, dict)
            headers = {name.lower(): value for name, value in sent.items()}
            world, _, name = str(headers.get("x-api-key")).removeprefix(KEY).partition(".")
            if world == self.name and str(request["path"]).startswith("/v1/messages"):
                session = name.partition("-fake-")[0]
                found.setdefault(session, {})[str(headers["x-claude-code-session-id"])] = None
        return {name: list(processes) for name, processes in found.items()}

    def left(self, drivers: Sequence[int]) -> Sequence[str]:
        with self._engine() as engine:
            things = (
                *engine.containers(DRIVER_LABEL),
                *engine.volumes(DRIVER_LABEL),
                *engine.networks(DRIVER_LABEL),
            )
        return [
            str(thing.get("Names") or thing["Name"])
            for thing in things
            if any(f":{driver}:" in thing["Labels"][DRIVER_LABEL] for driver in drivers)
        ]

    @contextmanager
    def _engine(self) -> Iterator[Engine]:
        engine = open_engine(self.engine_at)
        try:
            yield engine
        finally:
            engine.close()


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    engine = open_engine(docker_host())
    try:
        with scripted_provider(engine, f"{driver_name()}-crash", extended_script()) as provider:
            yield provider
    finally:
        engine.close()


def world_of(name: str, provider: ScriptedProvider) -> ContainerWorld:
    return ContainerWorld(name, provider.engine.docker_host, provider.container, provider.upstream)


@pytest.mark.timeout(7200)
def test_a_driver_killed_at_any_boundary_leaves_no_container_and_repeats_nothing(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    directory = tmp_path / "whole"
    directory.mkdir()
    world = world_of("whole", provider)
    whole = driven(directory, world)
    assert whole.code == 0, whole
    assert sorted(map(len, world.asked().values())) == [1] * SESSIONS
    decided = 0
    for number in range(1, len(whole.reached) + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        world = world_of(str(number), provider)
        survived = survive(directory, world, number, decide)
        decided += len(survived.undecided)
        assert sum(map(len, world.asked().values())) <= SESSIONS + len(survived.undecided), number
        shutil.rmtree(directory)
        print(number, whole.reached[number - 1], survived, flush=True)
    assert decided
