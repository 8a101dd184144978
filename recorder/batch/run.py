"""Runs the sessions of a batch: a number at a time, each sidecar started ahead of its turn."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

from recorder.batch.recording import Job, Recorded, Setting, open_session, record
from recorder.engine.client import Engine, open_engine
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

    ``began`` is called before the session's container exists and ``ended`` after its files are
    durable, from the thread that runs it. ``stop`` starts no more sessions. The first exception
    of a session does so too, and is raised when every running one has ended.
    """
    waiting: queue.SimpleQueue[Job] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    with ThreadPoolExecutor(parallel) as places:
        running = [
            places.submit(
                _work, docker_host, waiting, setting, SESSION_UID + place, began, ended, stop
            )
            for place in range(parallel)
        ]
        try:
            for future in running:
                future.result()
        finally:
            stop.set()


def _work(
    docker_host: str,
    waiting: queue.SimpleQueue[Job],
    setting: Setting,
    uid: int,
    began: Callable[[Job], None],
    ended: Callable[[Recorded], None],
    stop: threading.Event,
) -> None:
    with ThreadPoolExecutor(1) as ahead:
        opening = _open_next(docker_host, waiting, setting, uid, ahead)
        while opening is not None:
            job, opened = opening
            engine, session = opened.result()
            try:
                if stop.is_set():
                    session.remove()
                    return
                opening = _open_next(docker_host, waiting, setting, uid, ahead)
                began(job)
                ended(record(session, job, setting))
            except BaseException:
                stop.set()
                _abandon(opening)
                raise
            finally:
                engine.close()


_Opened = tuple[Engine, Session]


def _open_next(
    docker_host: str,
    waiting: queue.SimpleQueue[Job],
    setting: Setting,
    uid: int,
    ahead: ThreadPoolExecutor,
) -> tuple[Job, Future[_Opened]] | None:
    """The next job, its sidecar being started by another thread; None where none is left."""
    try:
        job = replace(waiting.get_nowait(), uid=uid)
    except queue.Empty:
        # Every job was taken, which is how a place ends.
        return None
    return job, ahead.submit(_open, docker_host, job, setting)


def _open(docker_host: str, job: Job, setting: Setting) -> _Opened:
    engine = open_engine(docker_host)
    return engine, open_session(engine, job, setting)


def _abandon(opening: tuple[Job, Future[_Opened]] | None) -> None:
    if opening is None:
        return
    engine, session = opening[1].result()
    session.remove()
    engine.close()
