"""Of a probe: its task word for word, its declared answers, and its first fault."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.plan.nodes import NodeError
from recorder.plan.probes import (
    Probe,
    ProbeFault,
    declared_answers,
    front_matter,
    is_probe,
    read_document,
    read_probe,
    section,
    task_of,
)
from recorder.workspace.manifest import digest_of

FIELDS = """id: PROBE-EX-units
status: current
probe_category: sufficiency
expectation: answered
oracle: "none"
"""
TASK = "Say whether it may. Answer `yes` or `no`."
ANSWERS = "```yaml\nanswers: [yes, no]\n```\n"


def document(fields: str = FIELDS, task: str = TASK, answers: str = ANSWERS) -> bytes:
    return (
        f"---\n{fields}---\n\n# A title\n\n## Task\n\n{task}\n\n## Expectation\n\nIt is.\n\n"
        f"{answers}"
    ).encode()


def probe(content: bytes) -> Probe:
    read = read_probe("docs/probes/0001-units.md", content)
    assert isinstance(read, Probe), read
    return read


def test_a_probe_is_read_whole() -> None:
    content = document()
    assert probe(content) == Probe(
        id="PROBE-EX-units",
        path="docs/probes/0001-units.md",
        category="sufficiency",
        expectation="answered",
        oracle="none",
        answers=("no", "yes"),
        task=TASK,
        examines=(),
        digest=digest_of(content),
    )
    assert probe(content).slug == "0001-units"


@pytest.mark.parametrize(
    "task",
    [
        TASK,
        "Two\n\nparagraphs.",
        "A `## Task` in a line, and ### nothing",
        "### A heading of its own\n\ntext",
        "```markdown\n## Not the end\n# nor this\n```\nafter",
        "~~~~\n```\n## Not the end\n~~~\n~~~~",
        "  indented first line\n\ttab\x0cform feed\u2028separator",
        "trailing spaces  \nand two blank lines\n\n\nbetween",
        "no ##end and #hash",
        "carriage\r\nreturns",
    ],
)
def test_the_task_is_the_body_word_for_word_d39(task: str) -> None:
    assert task_of(document(task=task).decode()) == task
    assert probe(document(task=task)).task == task


@given(st.text(st.characters(codec="utf-8"), max_size=60))
def test_every_task_without_a_heading_or_a_fence_comes_back(task: str) -> None:
    body = task.replace("#", "").replace("`", "").replace("~", "")
    lines = body.split("\n")
    if not lines[0].strip() or not lines[-1].strip() or body.endswith("\r"):
        return
    assert task_of(document(task=body).decode()) == body


@pytest.mark.parametrize("end", ["## Expectation\n", "# Another title\n", "## Task notes\n", ""])
def test_the_task_ends_at_the_next_heading_of_its_level(end: str) -> None:
    assert task_of(f"# t\n\n## Task\n\nDo it.\n\n{end}x") == (
        "Do it.\n\nx" if not end else "Do it."
    )


def test_a_task_that_comes_twice_or_is_empty_is_a_fault() -> None:
    with pytest.raises(NodeError, match="second `## Task`"):
        section("## Task\na\n## Task\nb\n", "Task")
    read = read_probe("p.md", document(task=""))
    assert isinstance(read, ProbeFault)
    assert "no task" in read.reason


@pytest.mark.parametrize(
    ("block", "answers"),
    [
        ("```yaml\nanswers: [yes, no]\nexpected: [no]\n```", ("no", "yes")),
        (
            "```yaml\nanswers:\n  - current HW-DR-0052\n  - draft\n```",
            ("current HW-DR-0052", "draft"),
        ),
        ("~~~yml\nanswers: [b, a, b, 1, null, 010]\n~~~", None),
        ("~~~yml\nanswers: [b, a, b, 1, 010, off]\n~~~", ("010", "1", "a", "b", "off")),
        ("```json\n{}\n```\n```yaml\nother: 1\n```", ()),
        ("answers: [yes]", ()),
    ],
)
def test_the_answers_are_as_written_sorted_and_distinct_b14(
    block: str, answers: tuple[str, ...] | None
) -> None:
    content = f"## Expectation\n\n{block}\n"
    if answers is None:
        with pytest.raises(NodeError, match="empty"):
            declared_answers(content)
    else:
        assert declared_answers(content) == answers


def test_answers_outside_of_the_expectation_are_text() -> None:
    assert declared_answers("## Task\n```yaml\nanswers: [a]\n```\n## Expectation\nnone\n") == ()


def test_two_answer_sets_are_refused() -> None:
    with pytest.raises(NodeError, match="second `answers`") as caught:
        declared_answers("## Expectation\n" + ANSWERS + ANSWERS)
    assert caught.value.line == 6


@pytest.mark.parametrize(
    ("fields", "answers", "says"),
    [
        (FIELDS.replace("id: PROBE-EX-units\n", "").replace("answered", "bad"), ANSWERS, "no `id`"),
        (FIELDS.replace("sufficiency", "other").replace("answered", "bad"), ANSWERS, "category"),
        (FIELDS.replace("answered", "solved").replace("none", "x"), ANSWERS, "expects `solved`"),
        (FIELDS.replace("answered", "patched"), ANSWERS, "names no oracle"),
        (FIELDS.replace("none", "a.rule"), ANSWERS, "names the oracle"),
        (FIELDS.replace("answered", "opened"), ANSWERS, "examines no document"),
        (FIELDS, "", "declares no `answers`"),
        (FIELDS.replace("answered", "patched").replace("none", "a.rule"), ANSWERS, "and declares"),
        (FIELDS + "id: again\n", ANSWERS, "twice"),
        (FIELDS + "relations: {examines: one}\n", ANSWERS, "not a sequence"),
    ],
)
def test_the_first_fault_is_the_one_reported_b19(fields: str, answers: str, says: str) -> None:
    read = read_probe("docs/probes/x.md", document(fields=fields, answers=answers))
    assert isinstance(read, ProbeFault)
    assert says in read.reason


def test_a_fault_of_the_front_matter_has_the_line_of_the_file() -> None:
    read = read_probe("p.md", document(fields=FIELDS + "oracle: again\n"))
    assert isinstance(read, ProbeFault)
    assert "line 7, column 1" in read.reason


@pytest.mark.parametrize(
    ("written", "identifier"),
    [
        ("id: HW-DR-0052", "HW-DR-0052"),
        ('id: "HW-DR-0052"  # quoted', "HW-DR-0052"),
        ("id: HW-DR-0052 # why", "HW-DR-0052"),
        ("title: a\n'id': X-1", "X-1"),
        ("title: id of a thing", None),
        ("summary: |\n  id: inner", None),
        ("{id: X-1}", "X-1"),
    ],
)
def test_the_identifier_of_any_document_is_read(written: str, identifier: str | None) -> None:
    read = read_document("a.md", f"---\n{written}\n---\ntext\n".encode())
    assert read is not None
    assert read.identifier == identifier


@pytest.mark.parametrize("content", [b"", b"# no\n", b"---\nid: x\n", b" ---\nid: x\n---\n"])
def test_a_file_without_front_matter_is_no_document(content: bytes) -> None:
    assert front_matter(content) is None
    assert read_document("a.md", content) is None
    assert not is_probe(content)


def test_front_matter_in_crlf_and_behind_a_byte_order_mark_is_read() -> None:
    content = b"\xef\xbb\xbf---\r\nid: X-1\r\nexpectation: opened\r\n---\r\n"
    read = read_document("a.md", content)
    assert read is not None
    assert read.identifier == "X-1"
    assert is_probe(content)
