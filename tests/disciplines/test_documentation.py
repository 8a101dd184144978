"""The seed's own examples and those of docs/disciplines.md load, judge and explain themselves."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recorder.disciplines.catalogue import MECHANISMS
from recorder.disciplines.declaration import Disciplines
from recorder.disciplines.explain import explanation
from recorder.disciplines.judging import World
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.verdicts import RECORDED_CALL, verdicts_of

_FENCE = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def _whole(block: str) -> Disciplines:
    text = textwrap.dedent(block)
    if not text.startswith("disciplines:"):
        text = "disciplines:\n" + textwrap.indent(text, "  ")
    return load_disciplines(text.encode(), "example.yaml")


@pytest.fixture(scope="module")
def examples(shared: Path) -> dict[str, Disciplines]:
    path = shared / "conformance" / "disciplines" / "examples" / "seed-003-yaml-blocks.yaml"
    blocks = [_whole(block) for block in path.read_text("utf-8").split("# ----\n")]
    found = {each.id: file for file in blocks for each in (*file.entries, *file.drafts)}
    assert len(blocks) == 7
    return found


def _seed(shared: Path) -> Iterator[str]:
    """The examples as the seed itself has them: those lines of its diff that are there now."""
    (path,) = (shared / "seeds").glob("003_*")
    lines = path.read_text("utf-8").splitlines()
    now = "\n".join(line[1:] for line in lines if line[:1] in (" ", "+"))
    yield from _FENCE.findall(now)


def test_every_example_of_the_seed_loads(shared: Path) -> None:
    blocks = list(_seed(shared))
    assert len(blocks) >= 6
    for block in blocks:
        loaded = _whole(block)
        assert [line.id for line in explanation(loaded)]


def _events(disciplines: Disciplines, world: World) -> list[str]:
    return [each.event for each in verdicts_of(disciplines.entries, [world], RECORDED_CALL)]


def _path(path: str, **more: object) -> World:
    return World(subject=path, path=path, **more)  # type: ignore[arg-type]


SAID: list[tuple[str, Callable[[], World], list[str]]] = [
    ("hooks-stay-armed", lambda: World(command="ls\nLEFTHOOK=0 git commit"), ["advised"]),
    ("hooks-stay-armed", lambda: World(command="ls"), ["passed"]),
    ("hooks-stay-armed", lambda: _path("a", post="LEFTHOOK=0"), []),
    ("covenant-vocabulary", lambda: _path("packages/a/src/x", post="a guard"), ["advised"]),
    (
        "covenant-vocabulary",
        lambda: _path("packages/a/src/x", pre="guard", post="guard\nmore guard"),
        ["passed"],
    ),
    ("covenant-vocabulary", lambda: _path("packages/a/src/x", pre="guard"), ["passed"]),
    ("covenant-vocabulary", lambda: _path("docs/x", post="guard"), []),
    ("archived-records-stay-frozen", lambda: _path("records/archive/a", post="x"), ["passed"]),
    (
        "archived-records-stay-frozen",
        lambda: _path("records/archive/a", pre="x", post="y"),
        ["advised"],
    ),
    ("archived-records-stay-frozen", lambda: _path("records/archive/a", pre="x"), ["advised"]),
    ("archived-records-stay-frozen", lambda: _path("records/archive/a"), ["advised"]),
    ("dependency-needs-npm-view", lambda: _path("package.json"), ["skipped"]),
    (
        "dependency-needs-npm-view",
        lambda: _path("package.json", transcript={"userMessages": [], "toolCalls": []}),
        ["advised"],
    ),
    (
        "dependency-needs-npm-view",
        lambda: _path(
            "packages/a/package.json",
            transcript={
                "userMessages": [],
                "toolCalls": [
                    {
                        "index": 0,
                        "name": "Bash",
                        "args": {"command": "cd a && npm view yaml"},
                        "succeeded": True,
                    }
                ],
            },
        ),
        ["passed"],
    ),
    ("db-only-under-knowledge", lambda: _path("x.db"), ["advised"]),
    ("db-only-under-knowledge", lambda: _path("_docs/knowledge/x.db"), ["passed"]),
    ("bilingual-docs-sync", lambda: _path("docs/a.md"), []),
]


@pytest.mark.parametrize(("name", "world", "events"), SAID)
def test_an_example_does_what_the_seed_says(
    examples: dict[str, Disciplines], name: str, world: Callable[[], World], events: list[str]
) -> None:
    assert _events(examples[name], world()) == events


def test_every_example_of_the_page_loads(project: Path) -> None:
    blocks = _FENCE.findall((project / "docs" / "disciplines.md").read_text("utf-8"))
    assert blocks
    for block in blocks:
        loaded = _whole(block)
        assert loaded.entries
    page = _whole(blocks[0])
    cited = _path("reports/a.md", post="see SLU-DEC-0002")
    assert _events(page, cited) == ["blocked", "skipped"]


def test_the_page_has_every_mechanism(project: Path) -> None:
    page = (project / "docs" / "disciplines.md").read_text("utf-8")
    table = page[page.index("| mechanism |") : page.index("## What is judged where")]
    for row in MECHANISMS.values():
        if row.reserved:
            continue
        (line,) = [each for each in table.splitlines() if re.search(rf"\b{row.name}\b", each)]
        reads, relates = (cell.strip() for cell in line.split("|")[2:4])
        if reads != "all":
            assert set(reads.split(", ")) == row.axes, row.name
            assert set(relates.split(", ")) == row.relations, row.name


def test_the_page_s_hook_is_a_setting_of_the_harness(project: Path) -> None:
    page = (project / "docs" / "disciplines.md").read_text("utf-8")
    (block,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (matcher,) = json.loads(block)["hooks"]["PreToolUse"]
    assert matcher["hooks"][0]["command"].startswith("recorder judge --hook")
