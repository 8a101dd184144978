"""A workspace whose settings ask the harness, or its runtime, to print into the stream."""

from __future__ import annotations

import json

from recorder.refusal import ExitCode
from recorder.session.harness import OFF_OUTPUT, UNSET_OUTPUT
from tests.session.stage import Scene, Stage, bash, text, turn

WORDS = "The provider's own words.\n\ndone"
ASKED = {
    **dict.fromkeys(UNSET_OUTPUT, "*"),
    **dict.fromkeys(OFF_OUTPUT, "1"),
    "ANTHROPIC_LOG": "debug",
    "BUN_CONFIG_VERBOSE_FETCH": "curl",
    "NODE_DEBUG": "http,net,tls",
    "OTEL_LOGS_EXPORTER": "console",
    "OTEL_LOG_LEVEL": "debug",
    "OTEL_METRICS_EXPORTER": "console",
    "OTEL_TRACES_EXPORTER": "console",
}


def scene(env: dict[str, str], *, pinned: bool) -> Scene:
    return Scene(
        files={".claude/settings.json": json.dumps({"env": env})},
        turns=(turn(bash("echo ran")), turn(text(WORDS))),
        meddling={} if pinned else {"etc/claude-code/managed-settings.json": (b"{}", 0o644)},
    )


SCENES = {
    "log": scene({"ANTHROPIC_LOG": "debug"}, pinned=True),
    "every": scene(ASKED, pinned=True),
    "unpinned": scene({"ANTHROPIC_LOG": "debug"}, pinned=False),
}


def test_a_workspace_that_asks_for_a_log_is_recorded_without_it(stage: Stage) -> None:
    assert stage.take("log").whole().final == WORDS


def test_every_such_variable_of_a_workspace_changes_nothing(stage: Stage) -> None:
    take = stage.take("every").whole()
    assert take.final == WORDS
    assert (take.directory / "stderr.log").read_bytes() == b""


def test_without_the_pinned_values_the_stream_is_broken(stage: Stage) -> None:
    refusal = stage.take("unpinned").recorded.refusal
    assert refusal is not None
    assert refusal.code == ExitCode.OBSERVATION
