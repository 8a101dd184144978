"""Every bullet of "The init line is the check"."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.stream.init_check import all_init_faults, init_faults
from recorder.stream.observation import observe
from tests.stream.streams import init, line, result


def faults(stream: list[bytes], directory: str = "/session/config") -> tuple[str, ...]:
    return all_init_faults(
        observe(stream),
        declared_servers=frozenset({"calc"}),
        host_skills=frozenset({"obsidian"}),
        configuration_directory=directory,
    )


def test_a_line_that_shows_nothing_foreign_passes() -> None:
    servers = [{"name": "calc", "status": "connected", "source": "project"}]
    assert faults([init(mcp_servers=servers)]) == ()
    assert faults([init(memory_paths={"auto": "/session/config/"})]) == ()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"permissionMode": "bypassPermissions"}, "bypassPermissions"),
        ({"plugins": [{"name": "x", "path": "/p"}]}, "plugin x"),
        ({"plugins": [{"name": "x"}]}, "plugin x"),
        ({"mcp_servers": [{"name": "sneaky"}]}, "MCP server sneaky"),
        ({"mcp_servers": [{"name": "calc", "source": "user"}]}, "MCP server calc"),
        ({"skills": ["obsidian"]}, "skill obsidian"),
        ({"skills": ["pack:one"]}, "skill pack:one"),
        ({"memory_paths": {"auto": "/home/u/.claude/memory/"}}, "/home/u/.claude/memory/"),
        ({"memory_paths": {"auto": "/session/config/../x"}}, "/session/config/../x"),
        ({"memory_paths": {"auto": "/session/configuration"}}, "/session/configuration"),
        ({"memory_paths": ["memory"]}, "memory path memory"),
        ({"served_by_anthropic": False}, "served_by_anthropic"),
        ({"plugins": {"x": {"path": "/p"}}}, "cannot be read"),
    ],
    ids=["I02", "I03", "I03-no-path", "I04", "I04-source", "I06", "namespace", "I08", "I08-climb",
         "I08-prefix", "I08-relative", "served-by", "unreadable"],
)  # fmt: skip
def test_each_item_is_one_reason(members: dict[str, Any], words: str) -> None:
    (reason,) = faults([init(**members)])
    assert words in reason


def test_no_init_line_is_a_reason() -> None:
    """I09"""
    (reason,) = faults([line(type="system", subtype="status"), result()])
    assert "no init line" in reason
    assert init_faults(
        None, declared_servers=frozenset(), host_skills=frozenset(), configuration_directory="/c"
    )


def test_every_init_line_is_checked_and_each_reason_is_one_line() -> None:
    """I12"""
    bad = init(permissionMode="bypassPermissions", skills=["a:b", "c\nd:e"])
    reasons = faults([init(), bad, result()])
    assert len(reasons) == 3
    assert all("line 2" in reason and "\n" not in reason for reason in reasons)


def test_the_init_line_is_found_where_the_last_line_is_cut() -> None:
    """I11"""
    assert faults([init(), result()[:20]]) == ()


@pytest.mark.parametrize(
    ("name", "count"),
    [("01-basic", 1), ("10-mcp-undeclared", 2), ("18-bypass", 2), ("85-via-mitm", 0),
     ("19-user-and-plugin", 5)],
)  # fmt: skip
def test_captures(shared: Path, name: str, count: int) -> None:
    stream = (shared / "captures" / "claude-code" / f"{name}.jsonl").read_bytes()
    assert len(faults([stream], "/home/session/.claude")) == count
