"""Real sessions for the tests of this room, each kind recorded once in a test session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import driver_name
from tests.evidence.kinds import KINDS
from tests.evidence.scenarios import extended_script
from tests.evidence.scripted import Recording, record_kind, scripted_provider

Record = Callable[[str], Recording]


@pytest.fixture(scope="session")
def record(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """Records a session of the kind that is named, once, and gives it from then on."""
    engine = open_engine(docker_host())
    directory = tmp_path_factory.mktemp("recorded")
    kept: dict[str, Recording] = {}
    try:
        with scripted_provider(engine, driver_name(), extended_script()) as provider:

            def recorded(name: str) -> Recording:
                if name not in kept:
                    kept[name] = record_kind(engine, provider, KINDS[name], directory / name)
                return kept[name]

            yield recorded
    finally:
        engine.close()
