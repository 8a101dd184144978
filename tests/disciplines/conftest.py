"""The vectors handed with the language, and worlds and declarations for tests."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from recorder.disciplines.declaration import Binding, Declaration
from recorder.disciplines.judging import World
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.values import ABSENT, Item, Items

FACTS = {
    "target.path": "path",
    "pre": "pre",
    "post": "post",
    "changes": "changes",
    "command": "command",
    "actor": "actor",
}


@pytest.fixture(scope="session")
def conformance(shared: Path) -> Path:
    return shared / "conformance" / "disciplines"


@pytest.fixture(scope="session")
def vectors(conformance: Path) -> Callable[[str], list[dict[str, Any]]]:
    def cases(name: str) -> list[dict[str, Any]]:
        read = json.loads((conformance / "vectors" / f"{name}.json").read_text("utf-8"))["cases"]
        assert isinstance(read, list)
        return read

    return cases


def load_one(block: Mapping[str, Any], identifier: str = "a-rule") -> Declaration:
    """A block of a declaration, through the loader as a file."""
    content = {"disciplines": [{"id": identifier, "declare": dict(block)}]}
    loaded = load_disciplines(json.dumps(content).encode(), "rules.json")
    declaration = loaded.entries[0].declaration
    assert declaration is not None
    return declaration


def world_of(named: Mapping[str, Any], bindings: Mapping[str, Binding]) -> World:
    """A world from facts under the names that a declaration reads them by."""
    facts = {FACTS[name]: value for name, value in named.items() if name in FACTS}
    files: dict[str, Any] = {}
    for name, binding in bindings.items():
        if name not in named:
            continue
        if binding.kind == "file":
            files[binding.path] = named[name]
        else:
            facts[binding.kind] = named[name]
    return World(
        subject=named.get("target.path", "-"),
        file=lambda path: files.get(path, ABSENT),
        **facts,
    )


def items_of(listed: list[dict[str, Any]]) -> Items:
    return tuple(Item(item["key"], item["value"]) for item in listed)
