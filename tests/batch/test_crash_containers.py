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
from recorder.batch.runner import Host
from recorder.batch.spec import BatchSpec
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.sidecar import Credential, Upstream
from tests.batch.crash import SESSIONS, driven, survive
from tests.batch.test_crash import decide
from tests.evidence.scenarios import extended_script
from tests.evidence.scripted import ScriptedProvider, scripted_provider

pytestmark = [pytest.mark.engine, pytest.mark.slow]


@dataclass(frozen=True)
class ScriptedSource(Source):
    """The provider's place is taken by one that lasts, so a session may have spent for good."""

    reached_at: Upstream = field(kw_only=True)

    def credential_of(self, _: str, session: str) -> Credential:
        return Credential("api_key", f"sk-ant-api03-{session}-fake-final_only")

    @contextmanager
    def upstream(self, *_: object) -> Iterator[Upstream]:
        yield self.reached_at


@dataclass(frozen=True)
class ContainerWorld:
    upstream: Upstream
    engine_at: str

    def host(self, spec: BatchSpec) -> tuple[Source, Host]:
        source = ScriptedSource(
            None, Credential("api_key", "sk-ant-none"), reached_at=self.upstream
        )
        return source, EngineHost(lambda: self.engine_at, spec, source, tuple, frozenset())

    def watched(self) -> Sequence[Path]:
        return ()

    def asked(self) -> Mapping[str, Sequence[str]]:
        raise NotImplementedError

    def left(self) -> Sequence[str]:
        engine = open_engine(self.engine_at)
        try:
            own = driver_identity()
            things = (
                *engine.containers(DRIVER_LABEL),
                *engine.volumes(DRIVER_LABEL),
                *engine.networks(DRIVER_LABEL),
            )
            return [
                str(thing.get("Names") or thing["Name"])
                for thing in things
                if thing["Labels"][DRIVER_LABEL] != own
            ]
        finally:
            engine.close()


@dataclass(frozen=True)
class WatchedWorld(ContainerWorld):
    """As the test sees it: with the provider's own log, of the requests since ``after``."""

    provider: ScriptedProvider
    after: int

    def asked(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, dict[str, None]] = {}
        for request in self.provider.log()[self.after :]:
            sent = request["headers"]
            assert isinstance(sent, dict)
            headers = {name.lower(): value for name, value in sent.items()}
            key = str(headers.get("x-api-key"))
            if not str(request["path"]).startswith("/v1/messages"):
                continue
            name = key.removeprefix("sk-ant-api03-").partition("-fake-")[0]
            found.setdefault(name, {})[str(headers["x-claude-code-session-id"])] = None
        return {name: list(processes) for name, processes in found.items()}

    def __reduce__(self) -> tuple[type[ContainerWorld], tuple[Upstream, str]]:
        """What a driver's process gets of it: the test's own connection stays here."""
        return ContainerWorld, (self.upstream, self.engine_at)


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    engine = open_engine(docker_host())
    try:
        with scripted_provider(engine, f"{driver_name()}-crash", extended_script()) as provider:
            yield provider
    finally:
        engine.close()


def world_of(provider: ScriptedProvider) -> WatchedWorld:
    return WatchedWorld(
        provider.upstream, provider.engine.docker_host, provider, len(provider.log())
    )


@pytest.mark.timeout(7200)
def test_a_driver_killed_at_any_boundary_leaves_no_container_and_repeats_nothing(
    provider: ScriptedProvider, tmp_path: Path
) -> None:
    directory = tmp_path / "whole"
    directory.mkdir()
    world = world_of(provider)
    whole = driven(directory, world)
    assert whole.code == 0, whole
    assert sorted(map(len, world.asked().values())) == [1] * SESSIONS
    decided = 0
    for number in range(1, len(whole.reached) + 1):
        directory = tmp_path / str(number)
        directory.mkdir()
        world = world_of(provider)
        survived = survive(directory, world, number, decide)
        decided += len(survived.undecided)
        assert sum(map(len, world.asked().values())) <= SESSIONS + len(survived.undecided), number
        shutil.rmtree(directory)
    assert decided
    print(f"{len(whole.reached)} boundaries, {decided} sessions decided by a person")
