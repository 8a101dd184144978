"""Sessions in containers of an engine: the host of every batch that is recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from recorder.batch.recording import Job, Recorded, Setting, open_session, record
from recorder.engine.client import Engine, open_engine
from recorder.session.driver import Session


@dataclass(frozen=True)
class OpenedContainer:
    """A session whose sidecar is started, with the engine connection of its own."""

    engine: Engine
    session: Session
    job: Job
    setting: Setting

    def run(self, before_start: Callable[[], None], halt: threading.Event) -> Recorded:
        return record(self.session, self.job, self.setting, before_start=before_start, halt=halt)

    def remove(self) -> None:
        try:
            self.session.remove()
        finally:
            self.engine.close()


@dataclass(frozen=True)
class Containers:
    """Opens sessions on an engine, each over a connection of its own."""

    docker_host: str
    setting: Setting

    def open(self, job: Job) -> OpenedContainer:
        engine = open_engine(self.docker_host)
        try:
            return OpenedContainer(
                engine, open_session(engine, job, self.setting), job, self.setting
            )
        except BaseException:
            engine.close()
            raise
