"""An engine as the host of a batch: the construction is proved, then sessions run in containers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from recorder.batch.batch import Source, image_id, prove_construction
from recorder.batch.containers import Containers
from recorder.batch.given import Given
from recorder.batch.line import LaidLine
from recorder.batch.recording import Setting
from recorder.batch.runner import Images, Runner
from recorder.batch.spec import BatchSpec
from recorder.batch.tools import lister_on, refuse_leaking_tools
from recorder.engine.client import Engine, open_engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.leftovers import (
    BATCH_LABEL,
    DRIVER_LABEL,
    collect_leftovers,
    driver_identity,
    driver_name,
    nothing_left,
)
from recorder.session.version import harness_version


@dataclass
class EngineHost:
    """``docker_host`` and ``not_enforced`` are asked when an engine is needed, and not before."""

    docker_host: Callable[[], str]
    spec: BatchSpec
    source: Source
    not_enforced: Callable[[], tuple[str, ...]]
    host_skills: frozenset[str]
    given: Given
    _engine: Engine | None = field(default=None, init=False)

    def images(self) -> Images:
        engine = self._opened()
        session = image_id(engine, "session")
        labels = {DRIVER_LABEL: driver_identity()}
        harness = harness_version(engine, session, name=driver_name(), labels=labels)
        return Images(session, image_id(engine, "proxy"), harness)

    def collect(self, kept: Callable[[], None], batch: str) -> None:
        collect_leftovers(self._opened(), kept, batch)

    @contextmanager
    def running(
        self, lines: Sequence[LaidLine], out: Path, images: Images, batch: str
    ) -> Iterator[Runner]:
        engine, source, spec = self._opened(), self.source, self.spec
        labels = {DRIVER_LABEL: driver_identity(), BATCH_LABEL: batch}
        with nothing_left(engine):
            not_enforced = self.not_enforced()
            if not_enforced and spec.limits == "required":
                raise Refusal(
                    ExitCode.CONFINEMENT,
                    f"this engine does not hold containers to their limits of "
                    f"{', '.join(not_enforced)}, and `limits: required` asks for that: see "
                    "`recorder doctor`, or write `limits: report`",
                )
            prove_construction(engine, images.session, out)
            refuse_leaking_tools(lines, lister_on(engine, images.session))
            with source.upstream(engine, driver_name(), labels) as upstream:
                yield Containers(
                    engine.docker_host,
                    Setting(
                        session_image=images.session,
                        sidecar_image=images.sidecar,
                        upstream=upstream,
                        credential_of=source.credential_of,
                        rehearsal=source.rehearsal is not None,
                        model=spec.model,
                        timeout=spec.timeout_seconds,
                        host_skills=self.host_skills,
                        not_enforced=not_enforced,
                        disk_floor=spec.disk_floor,
                        dollars=spec.bound,
                        policy=self.given.policy_text,
                        prices=self.given.prices,
                        batch=batch,
                    ),
                )

    def close(self) -> None:
        if self._engine is not None:
            self._engine.close()

    def _opened(self) -> Engine:
        if self._engine is None:
            self._engine = open_engine(self.docker_host())
        return self._engine
