"""The command in this process, and one rehearsed provider for the sessions of this room."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recorder.batch.batch import image_id
from recorder.cli import app
from recorder.engine.client import Engine, open_engine
from recorder.engine.connect import docker_host
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.upstream import rehearsal_network
from tests.recording.rig import Ran, Rig

Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Run the command to its end; an exception that it does not turn into a line fails a test."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]

    def run_in_process(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["recorder", *(str(a) for a in arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = app.main()
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Ran(code, said.out, said.err)

    yield run_in_process
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    opened = open_engine(docker_host())
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def rig(engine: Engine) -> Iterator[Rig]:
    labels = {DRIVER_LABEL: driver_identity()}
    script = "default: [{content: [{text: nothing}]}]"
    image = image_id(engine, "recorder")
    with rehearsal_network(engine, f"{driver_name()}-rows", labels, image, script) as upstream:
        yield Rig(engine, upstream)
