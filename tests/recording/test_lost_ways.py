"""A session that loses its way out, or its engine, in mid-run: said as such, its log kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from docker.errors import APIError
from requests.exceptions import ConnectionError as EngineGoneError

from proxy.egress import read
from recorder.batch.recording import open_session, record
from recorder.engine.client import Engine
from recorder.refusal import ExitCode
from recorder.session.attach import Attachment
from recorder.session.container import EGRESS_LOG
from recorder.session.driver import OUTCOME_FILE
from recorder.session.leftovers import nothing_left
from tests.recording.rig import Rig, line_of, own_identity, program_as_harness
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


def of_session(engine: Engine, name: str) -> list[str]:
    found = [*engine.containers("recorder.session"), *engine.volumes("recorder.session")]
    return [name for one in found if one["Labels"]["recorder.session"] == name]


def is_kept(directory: Path) -> None:
    log = read((directory / "egress.jsonl").read_bytes().splitlines(keepends=True))
    assert log.faults == ()
    assert (directory / "outcome.json").is_file()


@pytest.mark.parametrize("where", ["outcome", "stream"])
def test_what_fails_after_the_start_keeps_the_egress_log(
    where: str, rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    tree = tmp_path / "tree"
    tree.mkdir()
    job = rig.job(line_of(tree), f"fails-{where}", "echo begun", tmp_path)
    session = open_session(rig.engine, job, rig.setting())
    whole_get, whole_read = Engine.get_file, Attachment.read
    failed: list[str] = []

    def get_file(engine: Engine, container: str, path: str, limit: int) -> bytes | None:
        if where == "outcome" and path == OUTCOME_FILE and not failed:
            failed.append(path)
            raise APIError("no outcome now")
        return whole_get(engine, container, path, limit)

    def read_stream(attachment: Attachment) -> list[tuple[int, bytes]]:
        pieces = whole_read(attachment)
        if where == "stream" and any(b"begun" in piece for _, piece in pieces) and not failed:
            failed.append("stream")
            raise OSError(113, "No route to host")
        return list(pieces)

    monkeypatch.setattr(Engine, "get_file", get_file)
    monkeypatch.setattr(Attachment, "read", read_stream)
    with pytest.raises((APIError, OSError)):
        record(session, job, rig.setting())
    assert failed
    is_kept(job.directory)
    assert of_session(rig.engine, job.session) == []


def test_an_egress_log_that_cannot_be_had_is_left_for_the_collection(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program_as_harness(monkeypatch)
    own_identity(monkeypatch)
    tree = tmp_path / "tree"
    tree.mkdir()
    job = rig.job(line_of(tree), "owed", "echo begun", tmp_path)
    whole_get = Engine.get_file
    gone = True

    def get_file(engine: Engine, container: str, path: str, limit: int) -> bytes | None:
        if gone and path == EGRESS_LOG:
            raise EngineGoneError
        return whole_get(engine, container, path, limit)

    monkeypatch.setattr(Engine, "get_file", get_file)

    def record_without_the_engine() -> None:
        nonlocal gone
        session = open_session(rig.engine, job, rig.setting())
        try:
            record(session, job, rig.setting())
        finally:
            gone = False

    with pytest.raises(EngineGoneError), nothing_left(rig.engine):
        record_without_the_engine()
    is_kept(job.directory)
    assert of_session(rig.engine, job.session) == []
