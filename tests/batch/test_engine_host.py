"""What a batch asks of an engine before its first session."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec import structs

from recorder.batch.engine_host import EngineHost
from recorder.batch.given import given_of
from recorder.engine.connect import docker_host
from recorder.refusal import Refusal
from tests.batch.null_host import PAID, spec_of

pytestmark = pytest.mark.engine


def host_of(tmp_path: Path, limits: str) -> EngineHost:
    spec = structs.replace(spec_of(tmp_path), limits=limits)
    return EngineHost(
        docker_host, spec, PAID, lambda: ("memory", "processes"), frozenset(), given_of(spec)
    )


def test_the_harness_says_its_own_version_o25(tmp_path: Path, project: Path) -> None:
    import json

    pinned = json.loads((project / "images" / "session" / "package.json").read_text())
    (version,) = pinned["dependencies"].values()
    host = host_of(tmp_path, "report")
    try:
        assert host.images().harness == version
    finally:
        host.close()


def test_limits_that_are_required_and_not_held_refuse_a_batch(tmp_path: Path) -> None:
    host = host_of(tmp_path, "required")
    try:
        with (
            pytest.raises(Refusal, match="limits of memory, processes") as refused,
            host.running((), tmp_path, host.images(), "sha256:0"),
        ):
            pytest.fail("it runs")
    finally:
        host.close()
    assert refused.value.code == 12
    assert not (tmp_path / "evidence").exists()
