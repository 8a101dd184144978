"""Runs the sessions of a batch: a number at a time, each sidecar started ahead of its turn."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from recorder.batch.containers import Containers
from recorder.batch.recording import Job, Recorded, Setting
from recorder.batch.runner import OpenedSession, Runner
from recorder.refusal import Interrupt
from recorder.session.container import SESSION_UID


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Whom a batch tells what its sessions do, each from the thread that runs the session.

    ``opening`` before anything is made for it; ``starting`` before its container is made;
    ``began`` when nothing but the start is left to do; ``ended`` when its files are durable.
    ``aborting``: the calling thread was interrupted, and nothing was done about it yet. What one of
    them raises stops the batch.
    """

    opening: Callable[[Job], None] = _nothing
    starting: Callable[[Job], None] = _nothing
    began: Callable[[Job], None] = _nothing
    ended: Callable[[Recorded], None] = _nothing
    aborting: Callable[[BaseException], None] = _nothing


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
    """``run_on`` containers of an engine."""
    watch = Watch(began=began, ended=ended)
    run_on(Containers(docker_host, setting), jobs, parallel=parallel, watch=watch, stop=stop)


def run_on(
    runner: Runner, jobs: Sequence[Job], *, parallel: int, watch: Watch, stop: threading.Event
) -> None:
    """Run every job once, ``parallel`` at a time, each place with a uid of its own.

    ``stop`` starts no more sessions. The first exception of a session does so too, and is raised
    when every running one has ended. An interrupt of the calling thread kills the running ones;
    what they left is kept.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    places = _Places(runner, waiting, watch, stop, threading.Event())
    with ThreadPoolExecutor(parallel) as threads:
        running = [threads.submit(places.work, SESSION_UID + place) for place in range(parallel)]
        try:
            for future in running:
                future.result()
        except (Interrupt, KeyboardInterrupt) as interrupt:
            try:
                watch.aborting(interrupt)
            finally:
                places.halt.set()
            raise
        finally:
            stop.set()


@dataclass(frozen=True)
class _Places:
    """What the places of a driver share."""

    runner: Runner
    waiting: queue.SimpleQueue[Job]
    watch: Watch
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

    def _run(self, job: Job, opened: OpenedSession) -> None:
        def before_start() -> None:
            self.watch.began(job)

        self.watch.starting(job)
        self.watch.ended(opened.run(before_start, self.halt))

    def _open_next(
        self, uid: int, ahead: ThreadPoolExecutor
    ) -> tuple[Job, Future[OpenedSession]] | None:
        """The next job, its sidecar being started by another thread; None where none is left."""
        try:
            job = replace(self.waiting.get_nowait(), uid=uid)
        except queue.Empty:
            # Every job was taken, which is how a place ends.
            return None
        return job, ahead.submit(self._open, job)

    def _open(self, job: Job) -> OpenedSession:
        self.watch.opening(job)
        return self.runner.open(job)
