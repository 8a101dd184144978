"""Runs the sessions of a batch: a number at a time, each sidecar started ahead of its turn."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Protocol

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


class Jobs(Protocol):
    """Hands out the sessions that are to run, from any thread."""

    def take(self) -> Job | None:
        """The next one, which may be waited for; None where no more will start."""

    def give_back(self, job: Job) -> None:
        """One that was handed out did not start."""

    def stopped(self) -> bool:
        """Whether nothing more may start, also of what was handed out."""


@dataclass(frozen=True)
class Listed:
    """Every job once, in order, until ``stop`` is set."""

    jobs: deque[Job]
    stop: threading.Event
    _taking: threading.Lock = field(default_factory=threading.Lock)

    def take(self) -> Job | None:
        with self._taking:
            return self.jobs.popleft() if self.jobs and not self.stop.is_set() else None

    def give_back(self, job: Job) -> None:
        with self._taking:
            self.jobs.appendleft(job)

    def stopped(self) -> bool:
        return self.stop.is_set()


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
    listed = Listed(deque(jobs), stop)
    run_on(Containers(docker_host, setting), listed, parallel=parallel, watch=watch, stop=stop)


def run_on(
    runner: Runner, jobs: Jobs, *, parallel: int, watch: Watch, stop: threading.Event
) -> None:
    """Run what ``jobs`` hands out, ``parallel`` at a time, each place with a uid of its own.

    ``stop`` makes ``jobs`` hand out no more. The first exception of a session sets it, and is
    raised when every running one has ended. An interrupt of the calling thread sets it too and
    kills the running ones; what they left is kept.
    """
    places = _Places(runner, jobs, watch, stop, threading.Event())
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
                stop.set()
            raise


_Opening = Future[tuple[Job, OpenedSession] | None]


@dataclass(frozen=True)
class _Places:
    """What the places of a driver share."""

    runner: Runner
    jobs: Jobs
    watch: Watch
    stop: threading.Event
    halt: threading.Event

    def work(self, uid: int) -> None:
        """Run one job after another until none is left."""
        with ThreadPoolExecutor(1) as ahead:
            opening: _Opening | None = ahead.submit(self._open_next, uid)
            try:
                while opening is not None:
                    taken, opening = opening.result(), None
                    if taken is None:
                        return
                    job, opened = taken
                    try:
                        if self.jobs.stopped():
                            self.jobs.give_back(job)
                            return
                        opening = ahead.submit(self._open_next, uid)
                        self._run(job, opened)
                    finally:
                        opened.remove()
            except BaseException:
                self.stop.set()
                raise
            finally:
                # One that could not be opened left nothing, and an earlier cause is being told.
                if opening is not None and opening.exception() is None:
                    self._undo(opening.result())

    def _run(self, job: Job, opened: OpenedSession) -> None:
        def before_start() -> None:
            self.watch.began(job)

        self.watch.starting(job)
        self.watch.ended(opened.run(before_start, self.halt))

    def _open_next(self, uid: int) -> tuple[Job, OpenedSession] | None:
        """The next job with its sidecar started; None where no more will start.

        It may wait for a session that runs, so no place does this in a session's own thread.
        """
        job = self.jobs.take()
        if job is None:
            return None
        job = replace(job, uid=uid)
        self.watch.opening(job)
        return job, self.runner.open(job)

    def _undo(self, taken: tuple[Job, OpenedSession] | None) -> None:
        if taken is not None:
            job, opened = taken
            self.jobs.give_back(job)
            opened.remove()
