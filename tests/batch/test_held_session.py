"""One driver a session: who may record into a session's directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.batch.batch import held_session
from recorder.refusal import Refusal
from tests.recording.rig import EXAMPLES, PROBE, recorder


def test_a_second_driver_of_a_session_is_refused(tmp_path: Path) -> None:
    directory = tmp_path / "sessions" / "one"
    with held_session(directory):
        with pytest.raises(Refusal, match="another driver records this session") as met:
            held_session(directory).__enter__()
        assert met.value.code == 20
        with held_session(directory.with_name("two")):
            pass
    assert not directory.exists()


def test_a_session_that_left_something_is_not_recorded_over(tmp_path: Path) -> None:
    directory = tmp_path / "sessions" / "one"
    with held_session(directory):
        (directory / "raw.jsonl").write_text("kept")
    with pytest.raises(Refusal, match="holds a session already") as met:
        held_session(directory).__enter__()
    assert met.value.code == 2
    assert [path.name for path in directory.iterdir()] == ["raw.jsonl"]


def test_a_directory_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sessions").mkdir()
    (tmp_path / "sessions" / "one").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="is a link") as met:
        held_session(tmp_path / "sessions" / "one").__enter__()
    assert met.value.code == 19


@pytest.mark.engine
def test_record_takes_the_session_it_is_told_to_record(tmp_path: Path) -> None:
    directory = tmp_path / "out" / "sessions" / "one"
    words = ("record", "--corpus", EXAMPLES / "corpus", "--probe", PROBE, "--session", "one")
    words += ("--out", tmp_path / "out", "--rehearse", EXAMPLES / "rehearsal.yaml")
    with held_session(directory):
        ran = recorder(*words)
    assert ran.code == 20, ran.err
    assert str(directory) in ran.err
