"""Whatever a batch goes on by is on disk before the container that held it is taken away."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.batch.recording import open_session, record
from recorder.engine.client import Engine
from recorder.refusal import ExitCode
from tests.recording.rig import Rig, line_of, program_as_harness
from tests.stream.streams import init, result

pytestmark = pytest.mark.engine


def test_the_stream_and_the_egress_log_are_kept_before_anything_is_removed(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "stream").write_bytes(init() + result("yes"))
    job = rig.job(line_of(tree), "kept", "cat stream", tmp_path)
    there: list[set[str]] = []
    ends: list[bool] = []
    remove = Engine.remove_container

    def removing(self: Engine, container: str) -> None:
        there.append({path.name for path in job.directory.iterdir()})
        ends.append((job.directory / "egress.jsonl").read_bytes().endswith(b"\n"))
        remove(self, container)

    program_as_harness(monkeypatch)
    session = open_session(rig.engine, job, rig.setting())
    monkeypatch.setattr(Engine, "remove_container", removing)
    recorded = record(session, job, rig.setting())
    assert recorded.code == ExitCode.DONE, recorded.refusal
    # The session's own and its sidecar's.
    assert len(there) == 2
    assert all({"raw.jsonl", "stderr.log", "egress.jsonl"} <= names for names in there)
    assert all(ends)
    # It is not over yet: with its containers gone, the ledger still has it without an end.
    assert all("evidence.json" not in names for names in there)
