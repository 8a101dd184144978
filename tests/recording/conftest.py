"""One rehearsed provider for the sessions that this room's tests order themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from recorder.batch.batch import image_id
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.upstream import rehearsal_network
from tests.recording.rig import Rig

SCRIPT = "default: [{content: [{text: nothing}]}]"


@pytest.fixture(scope="session")
def rig() -> Iterator[Rig]:
    engine = open_engine(docker_host())
    labels = {DRIVER_LABEL: driver_identity()}
    image = image_id(engine, "recorder")
    try:
        with rehearsal_network(engine, f"{driver_name()}-rig", labels, image, SCRIPT) as upstream:
            yield Rig(engine, upstream)
    finally:
        engine.close()
