"""Rows I and L of the contract: the init line's check, and from a stream to its event."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from recorder.refusal import ExitCode, Refusal
from recorder.stream.init_check import all_init_faults
from recorder.stream.observation import observe
from tests.contract.conftest import Run
from tests.recording.rig import DEAD_ENGINE
from tests.stream.streams import blocks, call, init, line, outcome, result

LIVE = "conformance/headwater/live-haiku-session.reduced.jsonl"


def faults(*stream: bytes, declared: frozenset[str] = frozenset()) -> tuple[str, ...]:
    return all_init_faults(
        observe(stream),
        declared_servers=declared,
        host_skills=frozenset({"obsidian"}),
        configuration_directory="/session/config",
    )


@pytest.mark.parametrize(
    ("shown", "declared", "says"),
    [
        pytest.param({}, (), None, id="I01"),
        pytest.param({"permissionMode": "bypassPermissions"}, (), "bypassPermissions", id="I02"),
        pytest.param(
            {"plugins": [{"name": "x", "path": "/root/plugin"}]}, (), "the plugin x", id="I03"
        ),
        pytest.param(
            {"mcp_servers": [{"name": "headwater"}]}, (), "the MCP server headwater", id="I04"
        ),
        pytest.param({"mcp_servers": [{"name": "headwater"}]}, ("headwater",), None, id="I05"),
        pytest.param({"skills": ["obsidian"]}, (), "the skill obsidian", id="I06"),
        pytest.param({"skills": ["plugin:review"]}, (), "the skill plugin:review", id="I07"),
        pytest.param(
            {"memory_paths": {"auto": "/root/.claude/memory/"}},
            (),
            "the memory path /root/.claude/memory/",
            id="I08",
        ),
        pytest.param(
            {"memory_paths": {"auto": "/session/config-of-another/"}},
            (),
            "the memory path /session/config-of-another/",
            id="I08-beside-it",
        ),
    ],
)
def test_what_an_init_line_shows(
    shown: Mapping[str, Any], declared: tuple[str, ...], says: str | None
) -> None:
    found = faults(init(**shown), result(), declared=frozenset(declared))
    if says is None:
        assert found == ()
    else:
        (reason,) = found
        assert says in reason


def test_i09_a_stream_without_an_init_line_is_refused() -> None:
    (reason,) = faults(line(type="system", subtype="hook_started"), result())
    assert "no init line" in reason


def test_i11_the_init_line_is_found_in_a_stream_that_is_cut() -> None:
    assert faults(init(), b'{"type":"assis') == ()


def test_i12_each_reason_is_a_line_of_its_own() -> None:
    assert len(faults(init(permissionMode="bypassPermissions", skills=["obsidian", "a:b"]))) == 3


@pytest.fixture
def transformed(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The verb, with no engine anywhere: the one event that it prints."""
    monkeypatch.setenv("DOCKER_HOST", DEAD_ENGINE)

    def transform(*stream: bytes, workspace: Path | None = None, more: tuple[str, ...] = ()) -> Any:
        options = () if workspace is None else ("--workspace", str(workspace))
        ran = run(
            "transform", "--probe", "P", "--session", "s", *options, *more, stdin=b"".join(stream)
        )
        assert (ran.code, ran.err) == (0, ""), ran.err
        (event,) = yaml.safe_load(ran.out)
        return event

    return transform


PROSE = "answer: yes\n- probe: other\n  calls: []\nreasoning: I think"


def test_l01_nothing_of_any_other_block_is_in_the_event(run: Run) -> None:
    stream = (
        init()
        + blocks({"type": "thinking", "thinking": PROSE, "signature": PROSE})
        + blocks({"type": "text", "text": PROSE})
        + call("Read", {"file_path": "docs/a.md"})
        + outcome("toolu_1")
        + blocks({"type": "redacted_thinking", "data": PROSE}, {"type": "text", "text": PROSE})
        + result(PROSE)
    )
    ran = run("transform", "--probe", "P", "--session", "s", stdin=stream)
    assert ran.out == (
        '- probe: "P"\n  session: "s"\n  calls:\n    - tool: "Read"\n'
        '      argument: "docs/a.md"\n      result: ""\n  produced: []\n  answer: null\n'
    )


def test_l02_a_tool_that_the_provider_ran_is_no_call(transformed: Callable[..., Any]) -> None:
    served = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    event = transformed(init(), blocks(served), call("Read", {"file_path": "a"}), result())
    assert [seen["tool"] for seen in event["calls"]] == ["Read"]


@pytest.mark.parametrize("tag", ["redacted_thinking", "text", "a_tag_of_tomorrow"])
def test_l03_a_filter_that_admits_another_block_stops_and_names_it(tag: str) -> None:
    stream = [init(), blocks({"type": tag, "text": "x", "data": "x"}), result()]
    with pytest.raises(Refusal, match=tag) as refused:
        observe(stream, frozenset({"tool_use", tag}))
    assert refused.value.code == ExitCode.OBSERVATION


STARTS = re.compile(
    r"- probe: \"|  session: \"|  calls:( \[\])?$|    - tool: \"|      argument: \"|"
    r"      result: \"|  produced:( \[\])?$|    - path: \"|      cites:( \[\])?$|"
    r"      findings:( \[\])?$|        - \"|  answer: (\"|null$)"
)


def test_l04_l24_every_line_is_a_declared_key_at_its_indent_in_order(run: Run) -> None:
    stream = (
        init()
        + call("Write", {"file_path": "/workspace/a.md", "content": PROSE})
        + call("Bash", {"command": PROSE})
        + result("yes")
    )
    ran = run("transform", "--probe", "P", "--session", "s", "--answers", "yes", stdin=stream)
    lines = ran.out.splitlines()
    assert [text for text in lines if not STARTS.match(text)] == []
    (event,) = yaml.safe_load(ran.out)
    assert list(event) == ["probe", "session", "calls", "produced", "answer"]
    assert list(event["calls"][0]) == ["tool", "argument", "result"]
    assert list(event["produced"][0])[:3] == ["path", "result", "cites"]


def test_l05_a_watched_session_without_a_call(transformed: Callable[..., Any]) -> None:
    assert transformed(init(), result())["calls"] == []


@pytest.mark.parametrize(
    "stream",
    [
        pytest.param(b"", id="L06"),
        pytest.param(call("Read", {"file_path": "a"}) + result(), id="L07"),
        pytest.param(init() + b'{"type":"assistant"', id="L07-cut"),
    ],
)
def test_a_stream_that_is_no_observation_gives_nothing(stream: bytes, run: Run) -> None:
    ran = run("transform", "--probe", "P", "--session", "s", stdin=stream)
    assert (ran.code, ran.out) == (ExitCode.OBSERVATION, "")


def test_l09_no_value_leaves_its_line(transformed: Callable[..., Any]) -> None:
    path, command = "docs/a.md\nanswer: yes\ncalls: []", "ls\n- probe: x\n\tcat"
    event = transformed(
        init(), call("Read", {"file_path": path}), call("Bash", {"command": command}), result()
    )
    assert [seen["argument"] for seen in event["calls"]] == [
        path,
        '{"command":"ls\\n- probe: x\\n\\tcat"}',
    ]


def test_l12_one_encoder_writes_every_scalar(project: Path) -> None:
    rooms = [project / "recorder" / room for room in ("stream", "transform", "transcript")]
    users = {
        path.name
        for room in rooms
        for path in room.glob("*.py")
        if re.search(r"json\.(dumps|encode)", path.read_text("utf-8"))
        # These two make a line of a refusal of it, and no event.
        and path.name not in ("reader.py", "init_check.py")
    }
    assert users == {"scalar.py"}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    tree = tmp_path / "ws"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs/a.md").write_text("HW-DR-0001 and HW-OBL-0002, HW-DR-0001")
    (tree / "docs/b.md").write_text("nothing")
    (tree / "n.ipynb").write_text("{}")
    return tree


def digest(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"


def reads(workspace: Path, *names: str) -> list[bytes]:
    return [call("Read", {"file_path": f"{workspace}/{name}"}) for name in names]


def test_l13_l14_a_read_is_identified_by_the_bytes_on_disk(
    workspace: Path, transformed: Callable[..., Any]
) -> None:
    stream = [init(), *reads(workspace, "docs/a.md", "docs/b.md", "docs/a.md"), result()]
    seen = [made["result"] for made in transformed(*stream, workspace=workspace)["calls"]]
    assert seen == [digest(workspace / f"docs/{name}.md") for name in "aba"]
    assert seen[0] != seen[1]


def test_l15_the_digest_follows_the_file_and_not_the_log(
    workspace: Path, transformed: Callable[..., Any]
) -> None:
    stream = [init(), *reads(workspace, "docs/a.md"), result()]
    before = transformed(*stream, workspace=workspace)["calls"][0]["result"]
    (workspace / "docs/a.md").write_text("other")
    after = transformed(*stream, workspace=workspace)["calls"][0]["result"]
    assert before != after == digest(workspace / "docs/a.md")


@pytest.mark.parametrize(
    ("tool", "arguments", "argument"),
    [
        pytest.param("Bash", {"command": "ls -la"}, '{"command":"ls -la"}', id="L16"),
        pytest.param("Read", {"file_path": "docs/none.md"}, "docs/none.md", id="L17"),
        pytest.param("Grep", {"pattern": "x", "path": "docs"}, "docs", id="L18"),
        pytest.param("Read", {"file_path": None}, '{"file_path":null}', id="L18-null"),
        pytest.param("TaskList", {}, "{}", id="L19"),
        pytest.param("Bash", {"command": "a\tb\x01"}, '{"command":"a\\tb\\u0001"}', id="L22"),
    ],
)
def test_a_call_without_a_document(
    tool: str,
    arguments: dict[str, Any],
    argument: str,
    workspace: Path,
    transformed: Callable[..., Any],
) -> None:
    event = transformed(init(), call(tool, arguments), result(), workspace=workspace)
    assert event["calls"] == [{"tool": tool, "argument": argument, "result": ""}]


def test_l22_l23_every_scalar_is_double_quoted_on_one_line(run: Run) -> None:
    stream = init() + call("Bash", {"command": "a\nb\tc\x00d\x7f"}) + result()
    ran = run("transform", "--probe", "on", "--session", "1.0", stdin=stream)
    values = [text.split(": ", 1)[1] for text in ran.out.splitlines() if ": " in text]
    assert all(value in ("[]", "null") or value[0] == value[-1] == '"' for value in values)
    assert r"a\\nb\\tc\\u0000d" in ran.out
    (event,) = yaml.safe_load(ran.out)
    assert (event["probe"], event["session"]) == ("on", "1.0")


def writes(workspace: Path) -> list[bytes]:
    return [
        call("Read", {"file_path": f"{workspace}/docs/b.md"}),
        call("Edit", {"file_path": f"{workspace}/docs/a.md"}),
        call("Write", {"file_path": f"{workspace}/new.md"}),
        call("MultiEdit", {"file_path": f"{workspace}/docs/c.md"}),
        call("NotebookEdit", {"notebook_path": f"{workspace}/n.ipynb"}),
        call("Edit", {"file_path": f"{workspace}/docs/a.md"}),
        call("Bash", {"command": f"echo x > {workspace}/by-bash.md"}),
    ]


def test_l27_l28_l29_l32_what_the_write_calls_name(
    workspace: Path, transformed: Callable[..., Any]
) -> None:
    event = transformed(init(), *writes(workspace), result(), workspace=workspace)
    produced = {artifact["path"]: artifact for artifact in event["produced"]}
    assert list(produced) == ["docs/a.md", "new.md", "docs/c.md", "n.ipynb"]
    assert produced["docs/a.md"]["cites"] == ["HW-DR-0001", "HW-OBL-0002"]
    assert produced["docs/a.md"]["result"] == digest(workspace / "docs/a.md")
    assert "findings" not in produced["docs/a.md"]


def test_l37_cites_by_the_pattern_that_the_corpus_declares(
    workspace: Path, tmp_path: Path, transformed: Callable[..., Any]
) -> None:
    corpus = tmp_path / "corpus"
    (corpus / ".headwater").mkdir(parents=True)
    (corpus / ".headwater/probe.yml").write_text(
        "identifiers: 'HW-OBL-[0-9]{4}'\ntiers: {regression: {budget_cents: 1, "
        "session_cost_cents: 1, repetitions: 1, arms: [present]}}\n"
    )
    event = transformed(
        init(),
        *writes(workspace),
        result(),
        workspace=workspace,
        more=("--corpus", str(corpus)),
    )
    assert event["produced"][0]["cites"] == ["HW-OBL-0002"]


def test_l39_calls_of_subagents_are_in_stream_order(transformed: Callable[..., Any]) -> None:
    event = transformed(
        init(),
        call("Agent", {"prompt": "x"}, "toolu_1"),
        call("Read", {"file_path": "a"}, "toolu_2", parent="toolu_1"),
        call("Read", {"file_path": "b"}, "toolu_3"),
        result(),
    )
    assert [seen["tool"] for seen in event["calls"]] == ["Agent", "Read", "Read"]


def test_l40_the_recorded_stream(run: Run, shared: Path) -> None:
    stream = (shared / LIVE).read_bytes()
    ran = run("transform", "--probe", "P", "--session", "s", stdin=stream)
    (event,) = yaml.safe_load(ran.out)
    assert [seen["tool"] for seen in event["calls"]] == ["Read"]
    assert "headwater" not in ran.out


def test_l41_memory_of_the_harness_is_not_produced(transformed: Callable[..., Any]) -> None:
    memory = "/session/config/projects/-workspace/memory/MEMORY.md"
    event = transformed(init(), call("Write", {"file_path": memory}), result())
    assert event["produced"] == []


def test_l42_an_event_with_another_key_is_refused(run: Run, shared: Path) -> None:
    fixtures = shared / "conformance/headwater/fixtures"
    ran = run("check", fixtures / "transcript-with-prose.md")
    assert ran.code == 19
    assert "reasoning" in ran.err
