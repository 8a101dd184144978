"""No false alarm: 200 sessions of mixed kinds, three at a time, and the witnesses agree on each."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import driver_name
from tests.evidence.kinds import KINDS
from tests.evidence.scenarios import extended_script
from tests.evidence.scripted import Kind, record_kind, scripted_provider
from tests.evidence.test_kinds import joined

SESSIONS = 200
AT_A_TIME = 3
# These wait for the harness's own growing pauses, and test_kinds has each of them once.
SLOW = ("stall", "err429", "err529", "err500", "errdropmid", "cut-text", "cut-thought")


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_witnesses_raise_no_false_alarm(shared: Path, tmp_path: Path) -> None:
    kinds = [kind for kind in KINDS.values() if not kind.name.startswith(SLOW)]
    wanted = list(enumerate(itertools.islice(itertools.cycle(kinds), SESSIONS)))
    alarms: list[str] = []
    with ThreadPoolExecutor(AT_A_TIME) as places:
        engine = open_engine(docker_host())
        try:
            with scripted_provider(engine, f"{driver_name()}-soak", extended_script()) as provider:

                def session(job: tuple[int, Kind]) -> None:
                    number, kind = job
                    own = open_engine(docker_host())
                    try:
                        place = tmp_path / f"{number}-{kind.name}"
                        uid = 1000 + number % AT_A_TIME
                        recording = record_kind(own, provider, kind, place, uid=uid)
                    finally:
                        own.close()
                    found = joined(recording)
                    if recording.watched.ended != "harness":
                        alarms.append(f"{place.name}: ended by {recording.watched.ended}")
                    alarms.extend(f"{place.name}: {finding}" for finding in found.findings)

                list(places.map(session, wanted))
        finally:
            engine.close()
    assert alarms == []
