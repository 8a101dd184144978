"""Runs the sessions of a batch: a number at a time, each sidecar started ahead of its turn."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from recorder.batch.recording import Job, Recorded, Setting, open_session, record
from recorder.engine.client import Engine, open_engine
from recorder.refusal import Interrupt
from recorder.session.container import SESSION_UID
from recorder.session.driver import Session


def run_jobs(
    docker_host: str,
    jobs: Sequence[Job],
    setting: Setting,
    *,
    parallel: int,
    began: Callable[[Job], None],
    ended: Callable[[Recorded], None],
    stop: threading.Event,
) -> None:
    """Run every job once, ``parallel`` at a time, each place with a uid of its own.

    ``began`` is called just before the session is started and ``ended`` after its files are
    durable, from the thread that runs it. ``stop`` starts no more sessions. The first exception
    of a session does so too, and is raised when every running one has ended. An interrupt of the
    calling thread kills the running ones; what they left is kept.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    places = _Places(docker_host, waiting, setting, began, ended, stop, threading.Event())
    with ThreadPoolExecutor(parallel) as threads:
        running = [threads.submit(places.work, SESSION_UID + place) for place in range(parallel)]
        try:
            for future in running:
                future.result()
        except (Interrupt, KeyboardInterrupt):
            places.halt.set()
            raise
        finally:
            stop.set()


@dataclass(frozen=True)
class _Opened:
    """A session whose sidecar is started, with the engine connection of its own."""

    engine: Engine
    session: Session

    def remove(self) -> None:
        try:
            self.session.remove()
        finally:
            self.engine.close()


@dataclass(frozen=True)
class _Places:
    """What the places of a driver share."""

    docker_host: str
    waiting: queue.SimpleQueue[Job]
    setting: Setting
    began: Callable[[Job], None]
    ended: Callable[[Recorded], None]
    stop: threading.Event
    halt: threading.Event

    def work(self, uid: int) -> None:
        """Run one job after another until none is left."""
        with ThreadPoolExecutor(1) as ahead:
            opening = self._open_next(uid, ahead)
            try:
                while opening is not None:
                    (job, future), opening = opening, None
                    opened = future.result()
                    try:
                        if self.stop.is_set():
                            return
                        opening = self._open_next(uid, ahead)
                        self._run(job, opened)
                    finally:
                        opened.remove()
            except BaseException:
                self.stop.set()
                raise
            finally:
                # One that could not be opened left nothing, and an earlier cause is being told.
                if opening is not None and opening[1].exception() is None:
                    opening[1].result().remove()

    def _run(self, job: Job, opened: _Opened) -> None:
        def before_start() -> None:
            self.began(job)

        self.ended(
            record(opened.session, job, self.setting, before_start=before_start, halt=self.halt)
        )

    def _open_next(self, uid: int, ahead: ThreadPoolExecutor) -> tuple[Job, Future[_Opened]] | None:
        """The next job, its sidecar being started by another thread; None where none is left."""
        try:
            job = replace(self.waiting.get_nowait(), uid=uid)
        except queue.Empty:
            # Every job was taken, which is how a place ends.
            return None
        return job, ahead.submit(self._open, job)

    def _open(self, job: Job) -> _Opened:
        engine = open_engine(self.docker_host)
        try:
            return _Opened(engine, open_session(engine, job, self.setting))
        except BaseException:
            engine.close()
            raise
