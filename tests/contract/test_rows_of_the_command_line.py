"""Rows A, J and K of the contract: what the harness is told, and what is derived from a stream."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.refusal import ExitCode
from recorder.session.harness import (
    ALLOWED_TOOLS,
    HARNESS,
    command_line,
    environment,
)
from tests.contract.conftest import Run
from tests.recording.rig import DEAD_ENGINE, EXAMPLES, PROBE
from tests.stream.streams import init, result

LIVE = "conformance/headwater/live-haiku-session.reduced.jsonl"


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", DEAD_ENGINE)


def every_command_line() -> tuple[tuple[str, ...], ...]:
    """With and without each thing that a caller may name: every arm's command line is one."""
    return tuple(
        command_line(
            "the task",
            servers=servers,
            mcp_configuration=mcp,
            model=model,
            max_turns=max_turns,
        )
        for servers in ((), ("documents",))
        for mcp in (None, "/workspace/.mcp.json")
        for model in (None, "claude-sonnet-4-5")
        for max_turns in (None, 80)
    )


def value_of(argv: tuple[str, ...], option: str) -> str:
    assert argv.count(option) == 1, argv
    return argv[argv.index(option) + 1]


@pytest.mark.parametrize("argv", every_command_line(), ids=lambda argv: f"A23-{len(argv)}")
def test_a23_strict_mcp_config_stands_once_in_every_arm(argv: tuple[str, ...]) -> None:
    assert argv.count("--strict-mcp-config") == 1


def test_a24_no_mcp_config_without_the_file() -> None:
    assert "--mcp-config" not in command_line("t", servers=("documents",))


def test_a25_a_flag_that_is_always_there_follows_the_mcp_config() -> None:
    argv = command_line("t", mcp_configuration="/workspace/.mcp.json")
    at = argv.index("--mcp-config")
    assert argv[at : at + 3] == ("--mcp-config", "/workspace/.mcp.json", "--strict-mcp-config")


@pytest.mark.parametrize(
    ("option", "value"),
    [
        pytest.param("--setting-sources", "project,local", id="A26"),
        pytest.param("--permission-mode", "dontAsk", id="A27"),
        pytest.param("--disallowedTools", "WebSearch,WebFetch", id="A29"),
        pytest.param("--output-format", "stream-json", id="A22"),
    ],
)
def test_an_option_has_one_value_in_every_arm(option: str, value: str) -> None:
    for argv in every_command_line():
        assert value_of(argv, option) == value


def test_a27_nothing_asks_for_a_bypass_of_permissions() -> None:
    assert not any("bypassPermissions" in word for argv in every_command_line() for word in argv)


def test_a28_the_allowed_tools_are_one_value_and_the_same_for_every_arm() -> None:
    own = value_of(command_line("t"), "--allowedTools").split(",")
    assert own == list(ALLOWED_TOOLS)
    both = {
        value_of(command_line("t", servers=("documents",), mcp_configuration=mcp), "--allowedTools")
        for mcp in (None, "/workspace/.mcp.json")
    }
    assert both == {",".join((*ALLOWED_TOOLS, "mcp__documents"))}
    assert not {"WebSearch", "WebFetch"} & set(own)


def test_a30_model_and_cap_only_when_set_and_the_task_is_last() -> None:
    bare = command_line("t")
    assert "--model" not in bare
    assert "--max-turns" not in bare
    full = command_line("t", model="m", max_turns=80)
    assert value_of(full, "--model") == "m"
    assert value_of(full, "--max-turns") == "80"
    assert bare[-1] == full[-1] == "t"


@given(st.text(min_size=1))
def test_a30_any_task_is_one_word_and_never_an_option(task: str) -> None:
    assert command_line(task, mcp_configuration="/workspace/.mcp.json")[-2:] == ("--", task)


def test_a22_the_driver_reads_the_attach_pipe_and_no_log_of_the_harness(project: Path) -> None:
    assert "--verbose" in command_line("t")
    # Where the harness keeps its own log of a session; nothing of the recorder names it.
    for path in sorted((project / "recorder").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str):
                assert "projects/" not in text, path
                assert ".claude/projects" not in text, path


def test_g13_the_harness_lies_at_its_own_path() -> None:
    assert HARNESS == "/opt/harness/claude"
    assert {argv[0] for argv in every_command_line()} == {HARNESS}


def test_g08_home_and_the_harness_configuration_are_one_directory() -> None:
    assert environment()["HOME"] == environment()["CLAUDE_CONFIG_DIR"] == "/session/config"


@pytest.mark.usefixtures("no_engine")
def test_a16_provider_members_need_no_engine(run: Run, shared: Path) -> None:
    ran = run("derive", "provider", shared / LIVE)
    assert (ran.code, ran.err) == (0, "")
    assert [line.split(": ")[0] for line in ran.out.splitlines()] == [
        "model",
        "served_version",
        "cost_cents",
    ]


@pytest.mark.usefixtures("no_engine")
def test_j01_j02_the_members_of_the_recorded_stream(run: Run, shared: Path) -> None:
    assert run("derive", "provider", shared / LIVE).out == (
        "model: claude-haiku-4-5\nserved_version: claude-haiku-4-5-20251001\ncost_cents: 1\n"
    )


@pytest.mark.parametrize("verb", ["provider", "answer", "outside"])
def test_a18_a_log_that_is_not_there_is_usage(verb: str, run: Run, tmp_path: Path) -> None:
    more = ("--answers", "a") if verb == "answer" else ()
    ran = run("derive", verb, tmp_path / "none", *more)
    assert (ran.code, ran.out) == (2, "")


STATUS = "current HW-DR-0052, draft HW-DR-0052"


@pytest.mark.parametrize(
    ("text", "answers", "answer"),
    [
        pytest.param("headwater", "headwater, other", "headwater", id="K01"),
        pytest.param("headwater", "Headwater", "Headwater", id="K02"),
        pytest.param("it is presently so", "present, absent, withheld", "", id="K03"),
        pytest.param("presented", "present, absent, withheld", "", id="K03-inside-a-word"),
        pytest.param("headwater", "", "", id="K04"),
        pytest.param(
            "Found it: HW-DR-0034 rules on this.\n\nmerge\n", "merge, stamp", "merge", id="K05"
        ),
        pytest.param("merge\n\n \t\n", "merge, stamp", "merge", id="K18"),
        pytest.param("Reasoning first.\n**merge**", "merge, stamp", "", id="K07"),
        pytest.param("HW-DR-0052 current", STATUS, "current HW-DR-0052", id="K08"),
        pytest.param("draft   HW-DR-0052", STATUS, "draft HW-DR-0052", id="K09"),
        pytest.param("draft \t HW-DR-0052", STATUS, "draft HW-DR-0052", id="K09-tab"),
        pytest.param("0052 current HW-DR-0052", STATUS, "", id="K10"),
        pytest.param("current current HW-DR-0052", STATUS, "", id="K10-twice"),
        pytest.param("current", STATUS, "", id="K11"),
        pytest.param("Present.", "present", "present", id="K14"),
        pytest.param("present..", "present", "", id="K15"),
        pytest.param("present!", "present", "", id="K15-mark"),
        pytest.param("merge\xa0", "merge", "", id="K19"),
        pytest.param(None, "merge", "", id="K21"),
    ],
)
@pytest.mark.usefixtures("no_engine")
def test_a17_the_answer_is_the_declared_form_or_nothing(
    text: str | None, answers: str, answer: str, run: Run, tmp_path: Path
) -> None:
    stream = tmp_path / "raw.jsonl"
    stream.write_bytes(init() + result(text))
    ran = run("derive", "answer", stream, "--answers", answers)
    assert (ran.code, ran.out) == (0, f"{answer}\n" if answer else "")


CAPPED = init() + result("merge", subtype="error_max_turns", is_error=True)


@pytest.mark.parametrize(
    ("stream", "answers"),
    [
        pytest.param(CAPPED, ("--answers", "merge, stamp"), id="K23"),
        pytest.param(init() + result("merge"), (), id="K22"),
        pytest.param(init() + result("merge"), ("--answers", ""), id="K24"),
        pytest.param(init(), ("--answers", "merge"), id="K21"),
    ],
)
@pytest.mark.usefixtures("no_engine")
def test_an_event_without_an_answer_says_null(
    stream: bytes, answers: tuple[str, ...], run: Run
) -> None:
    ran = run("transform", "--probe", "P", "--session", "s", *answers, stdin=stream)
    assert ran.code == 0
    assert ran.out.endswith("  answer: null\n")


def record(out: Path, corpus: Path, **changes: str) -> tuple[str | Path, ...]:
    options = {"probe": PROBE, "session": "s", "rehearse": EXAMPLES / "rehearsal.yaml", **changes}
    words: list[str | Path] = ["record", "--corpus", corpus, "--out", out]
    for name, value in options.items():
        words += [f"--{name}", value]
    return tuple(words)


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    copy = tmp_path / "corpus"
    shutil.copytree(EXAMPLES / "corpus", copy)
    return copy


@pytest.mark.usefixtures("no_engine")
def test_a08_every_guard_is_passed_before_a_tool_is_missed(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    ran = run(*record(tmp_path / "out", corpus))
    assert ran.code == ExitCode.MISSING
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.usefixtures("no_engine")
def test_a09_a_place_inside_the_corpus_is_6_without_any_tool(
    run: Run, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert run(*record(corpus / "docs/out", corpus)).code == ExitCode.PLACE


@pytest.mark.usefixtures("no_engine")
def test_a07_refusals_come_in_their_order(run: Run, corpus: Path, tmp_path: Path) -> None:
    """Everything is wrong at once; each time the first cause is put right, the next one is said."""
    (corpus / ".headwater/probe.yml").rename(tmp_path / "probe.yml")
    inside, outside = corpus / "out", tmp_path / "out"
    assert run(*record(inside, corpus, session="-bad")).code == ExitCode.USAGE
    assert run(*record(inside, corpus)).code == ExitCode.PLACE
    assert run(*record(outside, corpus)).code == ExitCode.INSTRUMENT
    (tmp_path / "probe.yml").rename(corpus / ".headwater/probe.yml")
    assert run(*record(outside, corpus, probe="PROBE-EX-none")).code == ExitCode.PLAN_REFUSES
    assert run(*record(outside, corpus)).code == ExitCode.MISSING
