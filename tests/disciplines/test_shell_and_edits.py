"""What a shell command and an edit are seen to write."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recorder.disciplines.edits import FileChange, edited_text
from recorder.disciplines.shell import Unknown, Write, shell_evidence

Cases = Callable[[str], list[dict[str, Any]]]


def test_every_shell_vector(vectors: Cases) -> None:
    for case in vectors("shell-evidence"):
        found = shell_evidence(case["command"])
        name = case["command"]
        assert [
            {"path": w.path, "content": w.content, "mode": w.mode} for w in found.writes
        ] == case["evidence"], name
        match case["unjudgeable"]:
            case "some-pathless":
                assert found.unknown, name
                assert all(each.path is None for each in found.unknown), name
            case "some":
                assert found.unknown, name
            case expected:
                assert [{"path": each.path} for each in found.unknown] == expected, name


def test_every_edit_vector(vectors: Cases) -> None:
    for case in vectors("post-state"):
        post = edited_text(case["tool_name"], case["tool_input"], case["pre"])
        if case["expect"] is None:
            assert post is None, case["name"]
            continue
        change = FileChange("f", case["pre"], post)
        assert change.kind == case["expect"]["kind"], case["name"]
        assert change.post == case["expect"]["post"], case["name"]
        assert change.pre == case["expect"].get("pre"), case["name"]


@pytest.mark.parametrize(
    ("command", "writes", "unknown"),
    [
        ("echo a >| f", [Write("f", "a\n", "truncate")], []),
        ("X=1 echo a > f", [Write("f", "a\n", "truncate")], []),
        ('echo "a \\$b" > f', [Write("f", "a $b\n", "truncate")], []),
        ("echo a\\ b > 'g h'", [Write("g h", "a b\n", "truncate")], []),
        ("echo # no\necho a > f # > g", [Write("f", "a\n", "truncate")], []),
        ("echo 'a > b' > f", [Write("f", "a > b\n", "truncate")], []),
        ("echo $(cat x > y) > f", [], [Unknown("f")]),
        ("echo *.md > f", [], [Unknown("f")]),
        ("echo {a,b} > f", [], [Unknown("f")]),
        ("if true; then echo a > f; fi", [], [Unknown("f")]),
        ("for i in 1; do echo a > f; done", [], [Unknown("f")]),
        ("{ echo a; echo b; } > f", [], [Unknown("f")]),
        ("( echo a ) > f", [], [Unknown("f")]),
        ("printf x > f", [], [Unknown("f")]),
        ("echo a > f 2> g", [], [Unknown("f"), Unknown("g")]),
        ("sed -n -i.bak -e s/a/b/ f g", [], [Unknown("f"), Unknown("g")]),
        ("sed s/a/b/ f", [], []),
        ("tee -a f", [], [Unknown("f")]),
        ("cat > f <<A\nx\n", [], [Unknown("f")]),
        ("cat x > f <<'A'\nx\nA", [], [Unknown("f")]),
        ("> f", [Write("f", "", "truncate")], []),
        ("echo a >& f", [], [Unknown("f")]),
        ("echo a >&2", [], []),
        ("echo a > f )", [], [Unknown(None)]),
        ("(echo a > f", [], [Unknown(None)]),
    ],
)
def test_a_shell_line(command: str, writes: list[Write], unknown: list[Unknown]) -> None:
    found = shell_evidence(command)
    assert list(found.writes) == writes
    assert list(found.unknown) == unknown


PIECES = [
    "echo",
    "cat",
    "a",
    "b",
    "-n",
    "'x y'",
    '"z"',
    ">",
    ">>",
    "f",
    "g",
    "<<'E'\nbody\nE\n",
    "<<E\nbo$dy\nE\n",
    "<<< w",
    ";",
    "&&",
    "\n",
    "|",
    "2>&1",
    "$HOME",
    "\\",
    "'",
    "(",
    ")",
    "{",
    "}",
    "if",
    "then",
    "fi",
    "*",
    "~",
    "#",
    "sed -i s/a/b/",
    "tee",
    "cd /",
]


@given(st.lists(st.sampled_from(PIECES), max_size=9).map(" ".join) | st.text(max_size=40))
@settings(max_examples=300, deadline=None)
def test_no_command_line_raises(command: str) -> None:
    shell_evidence(command)


def test_what_is_computed_is_what_bash_writes(tmp_path: Path) -> None:
    """A computed write, where the command ends well, is byte for byte what bash leaves."""
    draw = random.Random(7)
    computed = 0
    for number in range(60):
        words = draw.choices(
            ["a", "'x > y'", '"q \\"r"', "-n", "\\$z", "tab\\\tx", "#h", "=1"], k=3
        )
        shape = draw.choice(
            [
                "echo {} > f",
                "echo {} >> f\necho {} >> f",
                "cat > f <<'E'\n{}\n$no `no`\nE",
                "cat >> f <<-E\n\t{0}\n\tE\necho {0} >> f",
                "cat > f <<< {0}",
            ]
        )
        command = shape.format(" ".join(words), words[0])
        found = shell_evidence(command)
        if found.unknown:
            continue
        text = ""
        for write in found.writes:
            text = write.content if write.mode == "truncate" else text + write.content
        computed += bool(found.writes)
        place = tmp_path / str(number)
        place.mkdir()
        subprocess.run(["bash", "-c", command], cwd=place, check=True, capture_output=True)
        assert (place / "f").exists() == bool(found.writes), command
        assert not found.writes or (place / "f").read_text() == text, command
    assert computed > 20


CELL = {"cell_type": "code", "id": "c1", "metadata": {}, "source": "x", "outputs": [1]}


def test_a_notebook_s_cell_is_proven_and_nothing_else_of_it() -> None:
    text = json.dumps({"cells": [CELL], "nbformat": 4}, indent=1)
    edit = {"notebook_path": "n.ipynb", "cell_id": "c1", "new_source": "y"}
    post = edited_text("NotebookEdit", edit, text)
    assert post is not None
    (cell,) = json.loads(post)["cells"]
    assert (cell["source"], cell["outputs"], cell["execution_count"]) == ("y", [], None)
    assert edited_text("NotebookEdit", {**edit, "cell_id": "c2"}, text) is None
    assert edited_text("NotebookEdit", {**edit, "edit_mode": "insert"}, text) is None
    assert edited_text("NotebookEdit", edit, "{}") is None
    assert edited_text("NotebookEdit", edit, text.replace("\n", "")) is None
    assert edited_text("NotebookEdit", {**edit, "edit_mode": "delete"}, text) == json.dumps(
        {"cells": [], "nbformat": 4}, indent=1
    )
