"""Run as a process of its own: record one session of large lines and print what it cost.

Output: one JSON object with the resident peaks in bytes, before the session, after its streams
were kept, and after its event was made.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from recorder.batch.batch import image_id
from recorder.batch.recording import open_session, record
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.session.driver import Session, Watched
from recorder.session.leftovers import DRIVER_LABEL, driver_identity, driver_name
from recorder.session.upstream import rehearsal_network
from tests.recording.rig import Rig, line_of, program_as_harness


def peak() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the kernel states no peak")


def main() -> None:
    tree, out, program = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    engine = open_engine(docker_host())
    labels = {DRIVER_LABEL: driver_identity()}
    peaks: dict[str, int] = {}
    run = Session.run

    def measured(session: Session, *arguments: object, **named: object) -> Watched:
        peaks["before"] = peak()
        watched = run(session, *arguments, **named)  # type: ignore[arg-type]
        peaks["streams"] = peak()
        return watched

    with pytest.MonkeyPatch.context() as monkeypatch:
        program_as_harness(monkeypatch)
        monkeypatch.setattr(Session, "run", measured)
        image = image_id(engine, "recorder")
        script = "default: [{content: [{text: nothing}]}]"
        with rehearsal_network(
            engine, f"{driver_name()}-memory", labels, image, script
        ) as upstream:
            rig = Rig(engine, upstream)
            job = rig.job(line_of(tree), "large", program, out)
            recorded = record(open_session(engine, job, rig.setting()), job, rig.setting())
    engine.close()
    peaks["event"] = peak()
    print(json.dumps({"code": recorded.code, **peaks}))


if __name__ == "__main__":
    main()
