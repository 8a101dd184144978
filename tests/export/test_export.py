"""Exports, each held to its format's own validator or reader, and without a model's words."""

from __future__ import annotations

import io
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorder.export.junit import to_junit
from recorder.export.reading import read_exported
from recorder.export.trajectory import trajectory, trajectory_json
from tests.export.formats import har_validator, inspect_python, junit_xsd, readers
from tests.recording.rig import PROJECT, environment_of, recorder
from tests.report import made
from tests.report.recorded import recorded_batch

UNITS = "L1-campaign-present-p3-r1"
WRITER = "L1-campaign-present-p2-r1"
TEXTS = frozenset({"text", "thinking"})


@pytest.fixture(scope="module")
def batch() -> Path:
    return recorded_batch()


@pytest.fixture
def copy(batch: Path, tmp_path: Path) -> Path:
    shutil.copytree(batch, tmp_path / "copy")
    return tmp_path / "copy"


def atif_faults(path: Path) -> list[str]:
    readers()
    from harbor.utils.trajectory_validator import TrajectoryValidator

    validator = TrajectoryValidator()
    validator.validate(path)
    return list(validator.errors)


def junit_cases(document: bytes) -> dict[str, tuple[str, str]]:
    """Each case by its name: how it ended and what its type is, read by another's reader."""
    readers()
    import junitparser
    import xmlschema

    xmlschema.XMLSchema(io.StringIO(junit_xsd().decode())).validate(io.StringIO(document.decode()))
    found = {}
    for suite in junitparser.JUnitXml.fromstring(document.decode()):
        for case in suite:
            ends = [(type(end).__name__, end.type or "") for end in case.result]
            found[case.name] = ends[0] if ends else ("", "")
    return found


# ATIF.


@pytest.mark.engine
def test_every_trajectory_is_one_by_the_formats_own_validator(batch: Path, tmp_path: Path) -> None:
    out = tmp_path / "trajectories"
    ran = recorder("export", batch, "--to", "atif", "--out", out)
    assert (ran.code, ran.err) == (0, "")
    paths = sorted(out.iterdir())
    assert [path.stem for path in paths] == sorted(
        place.name for place in (batch / "sessions").iterdir()
    )
    assert [atif_faults(path) for path in paths] == [[]] * 6
    document = json.loads((out / f"{UNITS}.json").read_text())
    del document["steps"][1]["message"]
    (out / "broken.json").write_text(json.dumps(document))
    assert atif_faults(out / "broken.json") != []


@pytest.mark.engine
def test_a_trajectory_has_the_calls_the_tokens_and_the_cost_of_its_session(batch: Path) -> None:
    ran = recorder("export", batch, "--to", "atif", "--session", UNITS)
    found = json.loads(ran.out)
    task, *steps = found["steps"]
    assert task["source"] == "user"
    assert task["message"].startswith("A sluice file of format 2")
    calls = [call for step in steps for call in step.get("tool_calls", ())]
    assert [call["function_name"] for call in calls] == [
        "Skill",
        "mcp__documents__list_documents",
        "Read",
        "Read",
    ]
    assert calls[2]["arguments"] == {"argument": "/workspace/docs/reference/sluice-file.md"}
    (session,) = read_exported(batch, [UNITS])
    evidence = json.loads((batch / "sessions" / UNITS / "evidence.json").read_text())
    digests = evidence["document_digests"]
    results = [r for step in steps for r in step.get("observation", {}).get("results", ())]
    assert results[2]["content"] == digests["docs/reference/sluice-file.md"]
    metrics = found["final_metrics"]
    assert metrics["total_cost_usd"] == float(evidence["corroboration"]["cost"]["harness"])
    assert metrics["total_prompt_tokens"] == sum(s["metrics"]["prompt_tokens"] for s in steps)
    assert metrics["total_steps"] == len(found["steps"])
    assert session.answer == found["extra"]["answer"] == "kibibytes"
    assert {step["message"] for step in steps} == {""}
    assert found["extra"]["rehearsal"] is True
    for name in (found["agent"]["model_name"], *(step["model_name"] for step in steps)):
        assert name.startswith("rehearsal/")


@pytest.mark.engine
def test_a_subagents_turns_are_a_trajectory_that_its_call_refers_to(
    copy: Path, tmp_path: Path
) -> None:
    place = copy / "sessions" / UNITS
    lines = [json.loads(line) for line in (place / "raw.jsonl").read_bytes().splitlines()]
    shown = [n for n, line in enumerate(lines) if line["type"] == "assistant"]
    blocks = [b for n in shown for b in lines[n]["message"]["content"] if b["type"] == "tool_use"]
    first = blocks[0]["id"]
    # As if the first call had run a subagent that made the last.
    for line in lines[shown[-2] :]:
        if line["type"] in ("assistant", "user") and line is not lines[shown[-1]]:
            line["parent_tool_use_id"] = first
    (place / "raw.jsonl").write_bytes(made.lines(*lines))
    (session,) = read_exported(copy, [UNITS])
    path = tmp_path / "one.json"
    path.write_bytes(trajectory_json(session))
    assert atif_faults(path) == []
    found = trajectory(session)
    assert [each.trajectory_id for each in found.subagent_trajectories or ()] == [first]
    references = [
        reference.trajectory_id
        for step in found.steps
        if step.observation is not None
        for result in step.observation.results
        for reference in result.subagent_trajectory_ref or ()
    ]
    assert references == [first]


# HAR.


@pytest.mark.engine
def test_a_har_is_one_by_its_schema(batch: Path) -> None:
    validator = har_validator()
    document = json.loads(recorder("export", batch, "--to", "har").out)
    assert list(validator.iter_errors(document)) == []
    one = json.loads(recorder("export", batch, "--to", "har", "--session", UNITS).out)
    assert {entry["pageref"] for entry in one["log"]["entries"]} == {UNITS}
    assert 0 < len(one["log"]["entries"]) < len(document["log"]["entries"])
    audited = recorder("audit", "export", batch, "--to", "har").out
    assert json.loads(audited) == document
    del document["log"]["entries"][0]["request"]["url"]
    assert list(validator.iter_errors(document)) != []


# JUnit.


def ends() -> bytes:
    chance = random.Random(4)
    sessions = [
        made.session(0, chance, name="recorded"),
        made.session(1, chance, name="capped", outcome="capped"),
        made.session(2, chance, name="refused", outcome="refused", code=14, reasons=("a", "b")),
        made.session(3, chance, name="broken", outcome="unreadable", faults=("no",)),
        made.session(4, chance, name="started", outcome="unfinished", seconds=None),
        made.session(5, chance, name="planned", outcome="not run", seconds=None),
    ]
    return to_junit(made.batch(sessions))


def test_each_end_is_a_case_and_a_refusal_is_a_failure_of_its_rule() -> None:
    assert junit_cases(ends()) == {
        "recorded": ("", ""),
        "capped": ("", ""),
        "refused": ("Failure", "exit 14: witnesses"),
        "broken": ("Error", "unreadable"),
        "started": ("Error", "unfinished"),
        "planned": ("Skipped", ""),
    }


def test_hostile_names_stay_a_document() -> None:
    cases = junit_cases(to_junit(made.hostile()))
    assert len(cases) == len(made.HOSTILE)
    assert sum(end == "Failure" for end, _ in cases.values()) == 1


@pytest.mark.engine
def test_a_recorded_batch_passes_and_a_refused_session_does_not(copy: Path) -> None:
    whole = junit_cases(recorder("export", copy, "--to", "junit").out.encode())
    assert set(whole.values()) == {("", "")}
    refuse(copy / "sessions" / UNITS)
    cases = junit_cases(recorder("export", copy, "--to", "junit").out.encode())
    assert cases[UNITS] == ("Failure", "exit 14: witnesses")
    one = junit_cases(recorder("export", copy, "--to", "junit", "--session", UNITS).out.encode())
    assert set(one) == {UNITS}
    ran = recorder("export", copy, "--to", "atif", "--session", UNITS)
    assert ran.code == 2
    assert f"left out: {UNITS} recorded no event (exit 14: witnesses)" in ran.err


def refuse(place: Path) -> None:
    """A session as it is left where its witnesses disagree."""
    evidence = json.loads((place / "evidence.json").read_text())
    evidence["refusal"] = {"code": 14, "reasons": ["the witnesses disagree"]}
    (place / "evidence.json").write_text(json.dumps(evidence))
    for name in ("event.yaml", "record.md"):
        (place / name).unlink()


# Inspect.


def in_inspect(*arguments: str | Path) -> str:
    ended = subprocess.run(
        [inspect_python(), *arguments],
        capture_output=True,
        text=True,
        cwd=PROJECT,
        env=environment_of({"PYTHONPATH": None}),
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


READ = """
import json, sys
from inspect_ai.log import read_eval_log
log = read_eval_log(sys.argv[1])
print(json.dumps({
    "status": log.status,
    "model": log.eval.model,
    "samples": {
        sample.uuid: {
            "id": sample.id,
            "epoch": sample.epoch,
            "answer": sample.scores["answer"].value if sample.scores else None,
            "error": sample.error.message if sample.error else None,
            "calls": [[call.function, call.arguments] for message in sample.messages
                      for call in getattr(message, "tool_calls", None) or ()],
            "cost": sum(usage.total_cost for usage in sample.model_usage.values()),
        }
        for sample in log.samples
    },
}))
"""


@pytest.mark.engine
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_inspects_own_reader_opens_the_log(copy: Path, tmp_path: Path) -> None:
    refuse(copy / "sessions" / WRITER)
    out = tmp_path / "batch.eval"
    in_inspect("-m", "recorder", "export", copy, "--to", "inspect", "--out", out)
    found = json.loads(in_inspect("-c", READ, out))
    assert found["status"] == "success"
    assert found["model"].startswith("rehearsal/")
    sessions = {session.name: session for session in read_exported(copy)}
    assert set(found["samples"]) == set(sessions)
    for name, sample in found["samples"].items():
        session = sessions[name]
        assert sample["id"] == f"campaign/{session.evidence.arm}/{session.evidence.probe}"
        if name == WRITER:
            assert sample["error"].startswith("exit 14: witnesses")
            continue
        assert sample["answer"] == (session.answer or "no declared answer")
        assert sample["cost"] == pytest.approx(session.dollars)
        assert sample["calls"] == [
            [each.call.tool, {"argument": each.call.argument}]
            for turn in session.turns
            for each in turn.calls
        ]
    # And none of a model's words.
    mark(copy / "sessions" / UNITS, lambda: MARKER)
    in_inspect("-m", "recorder", "export", copy, "--to", "inspect", "--out", out)
    dumped = in_inspect(
        "-c",
        "import sys; from inspect_ai.log import read_eval_log; "
        "print(read_eval_log(sys.argv[1]).model_dump_json())",
        out,
    )
    assert UNITS in dumped
    assert MARKER not in dumped


def test_without_inspect_the_format_is_refused(tmp_path: Path) -> None:
    ran = recorder("export", tmp_path, "--to", "inspect", "--out", tmp_path / "x.eval")
    assert ran.code == 3
    assert "-m pip install inspect-ai\n" in ran.err


# A model's words.

MARKER = "marker-of-a-models-words"


def strings(value: Any, of: Callable[[], str]) -> Any:
    """The same value with every string in it another."""
    if isinstance(value, str):
        return of()
    if isinstance(value, list):
        return [strings(each, of) for each in value]
    if isinstance(value, dict):
        return {key: strings(each, of) for key, each in value.items()}
    return value


def marked(line: dict[str, Any], of: Callable[[], str]) -> dict[str, Any]:
    """A line in which all that a model or a document said is another.

    What stays is what the contract names: a call's tool, and its argument, which is the path of a
    document, or else the whole input.
    """
    message = line.get("message") or {}
    for block in message.get("content") if isinstance(message.get("content"), list) else ():
        if block["type"] in TEXTS:
            block.update({name: of() for name in (block["type"], "signature") if name in block})
        elif block["type"] == "tool_result":
            block["content"] = strings(block["content"], of)
        elif block["type"] == "tool_use" and "file_path" in block["input"]:
            block["input"].update(content=of(), old_string=of(), description=of())
    for name in ("tool_use_result", "result"):
        if name in line:
            line[name] = strings(line[name], of)
    return line


def mark(place: Path, of: Callable[[], str]) -> None:
    lines = [json.loads(line) for line in (place / "raw.jsonl").read_bytes().splitlines()]
    (place / "raw.jsonl").write_bytes(made.lines(*(marked(line, of) for line in lines)))
    for path in (place / "produced").glob("*"):
        path.write_bytes(of().encode())


def exports(directory: Path) -> Iterator[str]:
    for session in read_exported(directory):
        yield trajectory_json(session).decode()
    for to in ("har", "junit"):
        yield recorder("export", directory, "--to", to).out


@pytest.mark.engine
@settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(words=st.lists(st.text(max_size=20), min_size=1, max_size=5))
def test_no_export_holds_a_models_words(batch: Path, tmp_path: Path, words: list[str]) -> None:
    directory = tmp_path / "marked"
    shutil.rmtree(directory, ignore_errors=True)
    (directory / "sessions").mkdir(parents=True)
    chance = random.Random(0)
    for name in (UNITS, WRITER):
        place = directory / "sessions" / name
        shutil.copytree(batch / "sessions" / name, place)
        mark(place, lambda: f"{chance.choice(words)}{MARKER}{chance.choice(words)}")
        assert MARKER in (place / "raw.jsonl").read_text()
    for text in exports(directory):
        assert WRITER in text or UNITS in text
        assert MARKER not in text


# What is refused.


@pytest.mark.engine
def test_what_does_not_hold_together_is_not_handed_on(copy: Path) -> None:
    place = copy / "sessions" / UNITS
    log = (place / "egress.jsonl").read_bytes()
    (place / "egress.jsonl").write_bytes(log.replace(b'"refused"', b'"allowed"', 1))
    for to in ("atif", "har"):
        assert recorder("export", copy, "--to", to, "--session", UNITS).code == 19
    (place / "egress.jsonl").write_bytes(log)
    record = (place / "record.md").read_text()
    (place / "record.md").write_text(record.replace('tool: "Skill"', 'tool: "Other"'))
    ran = recorder("export", copy, "--to", "atif", "--session", UNITS)
    assert ran.code == 19
    assert "its calls are not those of raw.jsonl" in ran.err


@pytest.mark.engine
def test_a_name_or_a_directory_that_is_none_is_a_usage_error(batch: Path, tmp_path: Path) -> None:
    for to in ("atif", "har", "junit"):
        assert recorder("export", tmp_path, "--to", to).code == 2
        ran = recorder("export", batch, "--to", to, "--session", "nobody")
        assert ran.code == 2
        assert "--session nobody" in ran.err
    ran = recorder("export", batch, "--to", "atif")
    assert ran.code == 2
    assert "holds 6 trajectories" in ran.err
    one = recorder("export", batch / "sessions" / UNITS, "--to", "atif")
    assert json.loads(one.out)["session_id"] == UNITS
