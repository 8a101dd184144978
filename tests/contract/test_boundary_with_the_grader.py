"""The recorder reads of a probe its task and its declared answers, and nothing else.

What a transcript says of an artifact is the same whatever probe was named: a value that needs the
probe belongs to the grader.
"""

from __future__ import annotations

import inspect
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from recorder.batch.line import lay_line
from recorder.batch.recording import Job
from recorder.batch.spec import LineSpec
from recorder.session.harness import command_line, environment
from recorder.stream.observation import observe
from recorder.transcript.contract import Event
from recorder.transform.cites import cites_in, compile_cites
from recorder.transform.event import build_event
from recorder.transform.findings import read_findings
from recorder.transform.produced import ProducedFile
from tests.stream.streams import call, init, result

words = st.text(st.characters(codec="utf-8"), max_size=30)
identifiers = st.from_regex(r"[A-Z]{2,4}-[A-Z]{2,4}-[0-9]{4}", fullmatch=True)
artifacts = st.dictionaries(
    st.from_regex(r"[a-z]{1,6}\.md", fullmatch=True),
    st.lists(st.one_of(words, identifiers), max_size=5).map(" ".join),
    min_size=1,
    max_size=4,
)
reported = st.lists(
    st.fixed_dictionaries(
        {"path": st.from_regex(r"[a-z]{1,6}\.md", fullmatch=True), "rule": identifiers}
    ),
    max_size=4,
)


def event_of(
    probe: str,
    session: str,
    answers: tuple[str, ...] | None,
    held: Mapping[str, str],
    printed: bytes,
) -> Event:
    findings = read_findings(printed, "/workspace")
    pattern = compile_cites()
    files = [
        ProducedFile(path, "sha256:0", cites_in(content.encode(), pattern))
        for path, content in held.items()
    ]
    stream = [init(), *(call("Write", {"file_path": path}) for path in held), result("done")]
    return build_event(
        observe(stream),
        probe=probe,
        session=session,
        document_digest=lambda _: "",
        produced=tuple(map(findings.attach, files)),
        answers=answers,
    )


@given(
    identifiers,
    identifiers,
    st.none() | st.lists(words.filter(str.strip), min_size=1).map(tuple),
    artifacts,
    reported,
)
def test_cites_and_findings_are_the_same_whatever_probe_is_named(
    one: str,
    other: str,
    answers: tuple[str, ...] | None,
    held: dict[str, str],
    listed: list[dict[str, str]],
) -> None:
    printed = json.dumps(listed).encode()
    # The artifacts name the probe too: it is an identifier like any other.
    held = {path: f"{content} {one}" for path, content in held.items()}
    first = event_of(one, "s1", answers, held, printed)
    second = event_of(other, "s2", None, held, printed)
    assert first.produced == second.produced
    assert first.calls == second.calls


PROBE_DOCUMENT = """\
---
id: PROBE-EX-units
status: current
status_since: 2025-11-10
summary: {summary}
probe_category: {category}
expectation: answered
oracle: "none"
relations:
  examines:
    - {examined}
---

# {title}

{rationale}

## Task

State the unit of a size.

Answer with one word.

## Expectation

{rationale}

```yaml
answers: [bytes, kibibytes]
expected: [{expected}]
```

{rationale}
"""
prose = st.lists(
    st.sampled_from(["because", "kibibytes", "bytes", "the guide", "SLU-DEC-0003"])
).map(" ".join)


@pytest.fixture(scope="module")
def tree_of_the_example(
    tmp_path_factory: pytest.TempPathFactory, project: Path
) -> Mapping[bytes, str]:
    """The example's present tree, which no probe document is a part of: digests by path."""
    tree = tmp_path_factory.mktemp("example") / "tree"
    laid = lay_line(project / "examples/corpus", LineSpec(tier="regression", arm="present"), tree)
    return {entry.path: entry.sha256 for entry in laid.line.manifest.entries}


@settings(max_examples=8, deadline=None)
@given(
    st.fixed_dictionaries(
        {
            "summary": st.sampled_from(["One fact.", "Another fact."]),
            "category": st.sampled_from(["navigability", "sufficiency"]),
            "examined": st.sampled_from(["SLU-DEC-0003", "SLU-DEC-0001"]),
            "title": st.sampled_from(["A size", "The unit"]),
            "rationale": prose,
            "expected": st.sampled_from(["bytes", "kibibytes"]),
        }
    )
)
def test_nothing_of_a_probe_but_its_task_and_answers_reaches_a_session(
    tmp_path_factory: pytest.TempPathFactory,
    project: Path,
    tree_of_the_example: Mapping[bytes, str],
    written: dict[str, Any],
) -> None:
    directory = tmp_path_factory.mktemp("boundary")
    corpus = directory / "corpus"
    shutil.copytree(project / "examples/corpus", corpus)
    for document in (corpus / "docs/probes").iterdir():
        document.unlink()
    (corpus / "docs/probes/0001-a-size.md").write_text(PROBE_DOCUMENT.format(**written))
    laid = lay_line(corpus, LineSpec(tier="regression", arm="present"), directory / "tree")
    (probe,) = laid.probes
    assert probe.task == "State the unit of a size.\n\nAnswer with one word."
    assert tuple(probe.answers) == ("bytes", "kibibytes")
    line = laid.line
    # What a session is given: its command line, its environment, its tree.
    argv = command_line(probe.task, servers=line.servers, max_turns=line.max_turns)
    shown = json.dumps([argv, sorted(environment().items())])
    for value in ("expected", "PROBE-EX-units", "expectation", written["title"], "rationale"):
        assert value not in shown
    assert not [entry for entry in line.manifest.entries if b"probes" in entry.path]
    held = {entry.path: entry.sha256 for entry in line.manifest.entries}
    assert held == tree_of_the_example


def test_a_session_s_order_has_no_place_for_anything_else_of_a_probe() -> None:
    of_a_probe = {"probe", "task", "answers"}
    own = {"line", "session", "directory", "uid", "before"}
    assert set(Job.__dataclass_fields__) == of_a_probe | own
    names = set(inspect.signature(build_event).parameters)
    assert names == {
        "observation", "probe", "session", "document_digest", "produced", "answers",
    }  # fmt: skip
    assert {field.name for field in structs.fields(Event)} == {
        "probe", "session", "calls", "produced", "answer",
    }  # fmt: skip
