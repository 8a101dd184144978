"""A session that loses its way out, or its engine, in mid-run: said as such, its log kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.batch.recording import open_session, record
from recorder.refusal import ExitCode
from tests.recording.rig import Rig, line_of, program_as_harness
from tests.session.stage import archive_of

pytestmark = pytest.mark.engine


def test_a_session_whose_forwarder_ended_is_refused_for_it(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    tree = tmp_path / "tree"
    tree.mkdir()
    job = rig.job(line_of(tree), "forwarder", "sleep 60", tmp_path)
    setting = rig.setting()
    session = open_session(rig.engine, job, setting)

    def break_forwarder() -> None:
        files = {"opt/recorder/forwarder.py": (b"raise SystemExit(3)", 0o644)}
        assert session.container is not None
        rig.engine.put(session.container, "/", iter([archive_of(files)]))

    recorded = record(session, job, setting, before_start=break_forwarder)
    assert recorded.refusal is not None
    assert recorded.code == ExitCode.CONFINEMENT
    assert "its forwarder ended with 3, so it had no way out" in recorded.refusal.reasons[0]
