"""The digest of the harness: measured once an image, and refused where there is no harness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.engine.client import Engine
from recorder.engine.connect import docker_host
from recorder.refusal import Refusal
from recorder.session.harness import HARNESS
from recorder.session.harness_digest import harness_digest

IMAGE = f"sha256:{'a' * 64}"
MEASURED = f"sha256:{'b' * 64}"


class Measuring:
    """An engine that counts what it is asked; nothing else of one is needed here."""

    def __init__(self, found: str | None = MEASURED) -> None:
        self.found = found
        self.asked: list[str] = []

    def digest_of_file(self, _: str, path: str) -> str | None:
        self.asked.append(path)
        return self.found


def digest(engine: Any, image: str, cache: Path) -> str:
    return harness_digest(engine, "c", image, {"XDG_CACHE_HOME": str(cache)})


def test_an_image_is_measured_once(tmp_path: Path) -> None:
    engine = Measuring()
    assert [digest(engine, IMAGE, tmp_path) for _ in range(3)] == [MEASURED] * 3
    assert engine.asked == [HARNESS]
    digest(engine, f"sha256:{'c' * 64}", tmp_path)
    assert len(engine.asked) == 2


def test_what_is_kept_and_is_no_digest_is_measured_again(tmp_path: Path) -> None:
    engine = Measuring()
    digest(engine, IMAGE, tmp_path)
    (kept,) = (tmp_path / "recorder").iterdir()
    kept.write_bytes(b"\xff")
    assert digest(engine, IMAGE, tmp_path) == MEASURED
    assert kept.read_text() == MEASURED
    assert len(engine.asked) == 2


def test_a_name_that_can_move_and_a_home_that_cannot_be_written_keep_nothing(
    tmp_path: Path,
) -> None:
    engine = Measuring()
    for _ in range(2):
        assert digest(engine, "recorder-session:latest", tmp_path) == MEASURED
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    assert digest(engine, IMAGE, tmp_path / "file") == MEASURED
    assert len(engine.asked) == 3


def test_an_image_without_a_harness_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="is not in the session image"):
        digest(Measuring(None), IMAGE, tmp_path)


@pytest.mark.engine
def test_an_engine_gives_a_files_digest_and_none_for_what_is_not_there() -> None:
    from hashlib import sha256

    from recorder.batch.batch import image_id
    from recorder.engine.client import open_engine
    from recorder.session.container import Limits, session_container

    engine: Engine = open_engine(docker_host())
    try:
        image = image_id(engine, "session")
        labels = {"recorder.role": "check"}
        container = engine.create_container(
            "recorder-digest-test", session_container(image, labels, None, Limits())
        )
        try:
            guard = Path("recorder/session/guard.py").read_bytes()
            found = engine.digest_of_file(container, "/opt/recorder/guard.py")
            assert found == f"sha256:{sha256(guard).hexdigest()}"
            assert engine.digest_of_file(container, "/opt/recorder/nothing") is None
        finally:
            engine.remove_container(container)
    finally:
        engine.close()
