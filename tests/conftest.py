"""What tests of several rooms share: the reference material beside the project, and the engine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from hypothesis import settings

from recorder.engine.connect import connect
from recorder.refusal import Refusal

PROJECT = Path(__file__).parent.parent

# How long an example takes is the machine's business; what it shows is the test's.
settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("new", deadline=None)
# The same examples in every run of make test; new ones in every run of make test-long.
settings.load_profile(os.environ.get("RECORDER_EXAMPLES", "same"))


@pytest.fixture(scope="session")
def project() -> Path:
    """The project's root."""
    return PROJECT


@pytest.fixture(scope="session")
def shared() -> Path:
    """Captures and conformance material: ``RECORDER_SHARED``, or ``shared`` beside the project."""
    directory = Path(os.environ.get("RECORDER_SHARED", PROJECT.parent / "shared"))
    if not directory.is_dir():
        pytest.skip(f"no reference material at {directory}: set RECORDER_SHARED")
    return directory


@pytest.fixture(scope="session")
def engine_client() -> Iterator[docker.DockerClient]:
    """A client of the engine that set-up started. A missing engine fails the test, not skips it."""
    try:
        client = connect()
    except Refusal as refusal:
        pytest.fail("; ".join(refusal.reasons))
    yield client
    client.close()
