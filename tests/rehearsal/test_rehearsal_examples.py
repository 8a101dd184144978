"""The examples: they are read, they are honest, and their parts name one another rightly."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from recorder.batch.spec import read_spec
from recorder.plan.composition import compose_plan
from recorder.rehearsal import script as script_module
from recorder.rehearsal.script import ProbeScript, Text, ToolUse, Turn, load_script

EXAMPLES = Path(__file__).parents[2] / "examples"
CORPUS = EXAMPLES / "corpus"
SCRIPT = load_script((EXAMPLES / "rehearsal.yaml").read_text(encoding="utf-8"), "rehearsal.yaml")
DECLARATION: dict[str, Any] = yaml.safe_load((CORPUS / ".headwater/probe.yml").read_text())
ARMS = {"present": [], "absent": DECLARATION["tiers"]["campaign"]["ablation"]}


def front_matter(path: Path) -> dict[str, Any]:
    members: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8").split("---\n")[1])
    return members


def section(path: Path, title: str) -> str:
    found = re.search(
        rf"^## {title}\n\n(.*?)(?=\n## |\Z)", path.read_text(), re.DOTALL | re.MULTILINE
    )
    assert found is not None
    return found[1].strip()


PROBES = {
    front_matter(path)["id"]: path for path in sorted((CORPUS / "docs" / "probes").glob("*.md"))
}
DOCUMENTS = {
    front_matter(path)["id"]: path
    for path in sorted((CORPUS / "docs").rglob("*.md"))
    if path.parent.name != "probes"
}
FILES = [path for path in sorted(CORPUS.rglob("*")) if path.is_file()]


def outside_the_instrument() -> list[Path]:
    removed = [CORPUS / entry for entry in DECLARATION["instrument"]]
    return [
        path
        for path in FILES
        if not any(path == entry or entry in path.parents for entry in removed)
        and "__pycache__" not in path.parts
    ]


def declared(probe: str) -> dict[str, list[str]]:
    fence = re.search(r"```yaml\n(.*?)```", section(PROBES[probe], "Expectation"), re.DOTALL)
    return yaml.safe_load(fence[1]) if fence else {}


def conversations(probe: str) -> Iterator[tuple[str, tuple[Turn, ...]]]:
    """Every arm and repetition with the turns that it gets."""
    script: ProbeScript = SCRIPT.probes[probe]
    for arm in ARMS:
        for repetition in (1, 2):
            session = f"L1-campaign-{arm}-p1-r{repetition}"
            matching = [v for v in script.sessions if fnmatch.fnmatchcase(session, v.match)]
            yield arm, matching[0].turns if matching else script.turns


def calls(turns: tuple[Turn, ...]) -> list[ToolUse]:
    return [block for turn in turns for block in turn.content if isinstance(block, ToolUse)]


def final_text(turns: tuple[Turn, ...]) -> str:
    last = turns[-1].content[-1]
    assert isinstance(last, Text)
    return last.text


def test_the_script_is_valid_against_the_schema() -> None:
    schema = json.loads(Path(script_module.__file__).with_name("script.schema.json").read_text())
    jsonschema.validate(yaml.safe_load((EXAMPLES / "rehearsal.yaml").read_text()), schema)


def test_every_probe_has_a_script_and_every_script_a_probe() -> None:
    assert (
        set(PROBES)
        == set(SCRIPT.probes)
        == {
            "PROBE-EX-units",
            "PROBE-EX-report",
            "PROBE-EX-outside",
        }
    )
    assert SCRIPT.default is not None


def test_every_document_has_an_identifier_of_its_own() -> None:
    count = len([p for p in FILES if p.suffix == ".md" and "docs" in p.parts]) - len(PROBES)
    assert len(DOCUMENTS) == count
    assert all(re.fullmatch(r"[A-Z]+-[A-Z]+-[0-9]{4}", name) for name in DOCUMENTS)


def test_every_identifier_that_a_file_names_is_a_document() -> None:
    for path in outside_the_instrument():
        named = set(re.findall(r"[A-Z]+-[A-Z]+-[0-9]{4}", path.read_text(encoding="utf-8")))
        assert named <= set(DOCUMENTS), path


def test_no_file_outside_the_instrument_names_a_probe() -> None:
    names = [name for probe, path in PROBES.items() for name in (probe, path.stem, path.stem[5:])]
    for path in outside_the_instrument():
        assert not [name for name in names if name in path.read_text(encoding="utf-8")], path


def test_no_text_that_every_session_loads_gives_an_answer_away() -> None:
    skills = [path.read_text().split("---\n")[1] for path in CORPUS.glob(".claude/skills/*/*.md")]
    assert skills
    tools = (CORPUS / "tools/documents_server.py").read_text()
    hook = (CORPUS / ".claude/hooks/session-note.sh").read_text()
    for text in [*skills, (CORPUS / "CLAUDE.md").read_text(), tools, hook]:
        for probe, strings in DECLARATION["leaks"].items():
            assert not [string for string in strings if string in text], probe


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_a_probe_examines_documents_of_the_corpus_that_no_arm_removes(probe: str) -> None:
    for examined in front_matter(PROBES[probe])["relations"]["examines"]:
        relative = DOCUMENTS[examined].relative_to(CORPUS)
        assert relative.parts[0] == "docs"
        assert not [entry for arm in ARMS.values() for entry in arm if entry == relative.parts[0]]


@pytest.mark.parametrize(
    ("probe", "document", "states"),
    [
        ("PROBE-EX-units", "SLU-DEC-0003", "A size without a suffix counts kibibytes"),
        ("PROBE-EX-outside", "SLU-REF-0003", "| 2.1 | 2025-10-17 | 1, 2 | published without a"),
    ],
)
def test_the_expected_answer_stands_in_the_examined_document(
    probe: str, document: str, states: str
) -> None:
    assert document in front_matter(PROBES[probe])["relations"]["examines"]
    assert states in DOCUMENTS[document].read_text()
    answers = declared(probe)
    assert set(answers["expected"]) < set(answers["answers"])
    assert all(answer in section(PROBES[probe], "Task") for answer in answers["answers"])


def test_the_report_probe_examines_exactly_the_decisions_in_force() -> None:
    in_force = {
        name
        for name, path in DOCUMENTS.items()
        if name.startswith("SLU-DEC") and front_matter(path)["status"] == "current"
    }
    assert set(front_matter(PROBES["PROBE-EX-report"])["relations"]["examines"]) == in_force


@pytest.mark.parametrize("probe", ["PROBE-EX-units", "PROBE-EX-outside"])
def test_every_rehearsed_session_ends_in_an_answer_of_the_closed_set(probe: str) -> None:
    last_lines = {
        (arm, final_text(turns).splitlines()[-1].removesuffix(".").lower())
        for arm, turns in conversations(probe)
    }
    given = {answer for _, answer in last_lines}
    assert given <= set(declared(probe)["answers"])
    (expected,) = declared(probe)["expected"]
    assert {answer for arm, answer in last_lines if arm == "present"} == {expected}
    assert {answer for arm, answer in last_lines if arm == "absent"} > {expected}


@pytest.mark.parametrize("probe", sorted(PROBES))
def test_a_rehearsed_session_uses_only_what_its_arm_holds(probe: str) -> None:
    for arm, turns in conversations(probe):
        for call in calls(turns):
            path = str(call.input.get("file_path", ""))
            if call.name == "Read":
                assert path.startswith("{workspace}/")
                assert (CORPUS / path.removeprefix("{workspace}/")).is_file(), path
            if arm == "absent":
                assert call.name != "Skill"
                assert not call.name.startswith("mcp__")


def test_the_outside_probe_tries_only_reserved_names() -> None:
    for _, turns in conversations("PROBE-EX-outside"):
        commands = " ".join(str(call.input.get("command", "")) for call in calls(turns))
        assert "curl" in commands
        assert "git clone" in commands
        assert all(name.endswith(".test") for name in re.findall(r"https://([^/\s]+)", commands))


@pytest.mark.parametrize("tier", sorted(DECLARATION["tiers"]))
def test_the_plan_of_every_tier_starts_and_selects_every_probe(tier: str) -> None:
    plan = compose_plan(CORPUS, tier=tier)
    assert plan.refusal is None
    assert {probe.id for probe in plan.selected} == set(PROBES)
    assert {probe.id: list(probe.answers) for probe in plan.selected} == {
        probe: sorted(declared(probe).get("answers", [])) for probe in PROBES
    }


def test_the_batch_names_what_is_there() -> None:
    assert read_spec(EXAMPLES / "batch.yaml").rehearse == "rehearsal.yaml"
    batch = yaml.safe_load((EXAMPLES / "batch.yaml").read_text())
    assert (EXAMPLES / batch["corpus"] / ".headwater/probe.yml").is_file()
    assert (EXAMPLES / batch["rehearse"]).is_file()
    for line in batch["lines"]:
        tier = DECLARATION["tiers"][line["tier"]]
        assert line["arm"] in tier["arms"]
        assert line["repetitions"] <= tier["repetitions"]
        sessions = line["repetitions"] * len(PROBES) * len(tier["arms"])
        assert sessions * tier["session_cost_cents"] <= tier["budget_cents"]


def test_every_entry_of_the_declaration_is_in_the_tree() -> None:
    entries = [*DECLARATION["instrument"], *DECLARATION["folds"]]
    for tier in DECLARATION["tiers"].values():
        entries += tier.get("ablation", [])
    assert all((CORPUS / entry).exists() for entry in entries)
    assert not (CORPUS / ".git").exists()


def test_the_server_lists_and_reads_documents() -> None:
    server = json.loads((CORPUS / ".mcp.json").read_text())["mcpServers"]["documents"]
    assert server["command"] == "python3"
    requests: list[dict[str, Any]] = [
        {"method": "initialize", "params": {"protocolVersion": "2025-06-18"}},
        {"method": "tools/list"},
        {"method": "tools/call", "params": {"name": "list_documents",
                                            "arguments": {"status": "superseded"}}},
        {"method": "tools/call", "params": {"name": "read_document",
                                            "arguments": {"identifier": "SLU-DEC-0003"}}},
        {"method": "tools/call", "params": {"name": "read_document",
                                            "arguments": {"identifier": "no"}}},
        {"method": "resources/list"},
    ]  # fmt: skip
    lines = [
        json.dumps({"jsonrpc": "2.0", "id": number, **request})
        for number, request in enumerate(requests)
    ]
    notification = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    done = subprocess.run(
        [sys.executable, *server["args"]],
        cwd=CORPUS,
        input="\n".join([lines[0], notification, "not json", *lines[1:]]) + "\n",
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [answer["id"] for answer in answers] == list(range(len(requests)))
    assert {tool["name"] for tool in answers[1]["result"]["tools"]} == {
        "list_documents",
        "read_document",
    }
    assert answers[2]["result"]["content"][0]["text"].startswith("SLU-DEC-0002 superseded")
    assert "kibibytes" in answers[3]["result"]["content"][0]["text"]
    assert answers[4]["result"]["isError"] is True
    assert answers[5]["error"]["code"] == -32601


def hook(event: str, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", str(CORPUS / ".claude/hooks/session-note.sh"), event],
        env={"PATH": os.environ["PATH"], **environment},
        input="{}",
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


def test_the_hook_notes_that_it_was_live_in_this_session(tmp_path: Path) -> None:
    environment = {"RECORDER_LOG_DIR": str(tmp_path), "RECORDER_SESSION": 'L1-p1-r1"\n'}
    assert hook("SessionStart", environment)
    assert hook("PreToolUse", environment) == ""
    lines = [json.loads(line) for line in (tmp_path / "hooks.jsonl").read_text().splitlines()]
    assert [(line["event"], line["probe_session"]) for line in lines] == [
        ("SessionStart", "L1-p1-r1"),
        ("PreToolUse", "L1-p1-r1"),
    ]


def test_the_hook_is_silent_outside_a_recorded_run(tmp_path: Path) -> None:
    assert hook("PreToolUse", {}) == ""
    assert hook("PreToolUse", {"RECORDER_LOG_DIR": str(tmp_path / "absent")}) == ""
    settings = json.loads((CORPUS / ".claude/settings.json").read_text())
    commands = re.findall(r'session-note\.sh (\w+)"', json.dumps(settings).replace('\\"', ""))
    assert commands == ["SessionStart", "PreToolUse"]
