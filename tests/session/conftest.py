"""Sessions of the real harness in real containers, against a rehearsal provider."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from tests.session.stage import Scene, Stage, open_stage


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    """The engine that set-up started."""
    opened = open_engine(docker_host())
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def scenes(request: pytest.FixtureRequest) -> Mapping[str, Scene]:
    """The module's scenes. A module whose scenes need a fixture overrides this one."""
    declared: Mapping[str, Scene] = request.module.SCENES
    return declared


@pytest.fixture(scope="module")
def stage(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    scenes: Mapping[str, Scene],
) -> Iterator[Stage]:
    """One rehearsal provider for the module; its scenes are recorded two at a time."""
    name = request.module.__name__.rpartition(".")[2].removeprefix("test_")
    directory: Path = tmp_path_factory.mktemp(name, numbered=False)
    with open_stage(docker_host(), directory, scenes) as opened:
        yield opened
