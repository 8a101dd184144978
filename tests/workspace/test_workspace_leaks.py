"""Section E of the behaviours: what leaks into text that every session starts with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorder.plan.declaration import Declaration, parse_declaration
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import WORKSPACE
from recorder.workspace.leaks import Leaks, file_leaks, find_leaks, tool_leaks
from recorder.workspace.loaded import (
    SESSION_PATH,
    Loaded,
    imports_of,
    listed_of,
    loaded_text,
)
from recorder.workspace.naming import Names, Subject

PROBE = "PROBE-FIX-status"
TEXT = """
leaks: {PROBE-FIX-status: [HW-DR-0052, "status: current"], PROBE-FIX-other: [a third thing]}
leaks_kept: []
tiers:
  regression: {budget_cents: 9, session_cost_cents: 1, repetitions: 1, arms: [present]}
"""
DECLARATION = parse_declaration(TEXT)
KEPT = parse_declaration(TEXT.replace("leaks_kept: []", "leaks_kept:\n  - PROBE-FIX-status"))
FLOW = parse_declaration(TEXT.replace("leaks_kept: []", "leaks_kept: [PROBE-FIX-status]"))
STRING = "HW-DR-0052"


def plant(root: Path, files: Mapping[str, str]) -> Path:
    for name, content in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content.encode())
    return root


def leaks(root: Path, declaration: Declaration = DECLARATION, *probes: str) -> Leaks:
    return file_leaks(root, declaration, probes or (PROBE,))


def names(root: Path) -> list[str]:
    return [leak.name for leak in leaks(root).found]


def matter(*lines: str, body: str = "") -> str:
    return "\n".join(("---", *lines, "---", body, ""))


SKILL = ".claude/skills/status/SKILL.md"
AGENT = ".claude/agents/reader.md"
COMMAND = ".claude/commands/find.md"


def test_a_description_with_declared_strings_leaks_a_line_each_e01(tmp_path: Path) -> None:
    plant(tmp_path, {SKILL: matter("description: HW-DR-0052 has status: current")})
    found = leaks(tmp_path)
    assert found.lines() == (
        f"leak {PROBE} {SKILL} HW-DR-0052",
        f"leak {PROBE} {SKILL} status: current",
    )
    with pytest.raises(Refusal, match=SKILL) as refused:
        found.require_none("the tree")
    assert refused.value.code == ExitCode.NAMED
    assert len(refused.value.reasons) == 2


@pytest.mark.parametrize("declaration", [KEPT, FLOW], ids=["block", "flow-P21"])
def test_what_is_kept_is_said_and_refuses_nothing_e02(
    tmp_path: Path, declaration: Declaration
) -> None:
    plant(tmp_path, {SKILL: matter('description: "HW-DR-0052 has status: current"')})
    found = leaks(tmp_path, declaration)
    assert [line.split()[0] for line in found.lines()] == ["kept", "kept"]
    found.require_none("the tree")


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param(SKILL, matter("description: >", "  one", "  HW-DR-0052 two"), id="E04"),
        pytest.param(SKILL, matter("description: one", "  HW-DR-0052 two"), id="E05"),
        pytest.param(AGENT, matter('description: "one', '  HW-DR-0052 two"'), id="E06"),
        pytest.param(AGENT, matter("description: 'one", "  HW-DR-0052 two'"), id="single-quoted"),
        pytest.param(SKILL, matter("description: |-", "  a", "  HW-DR-0052"), id="literal"),
        pytest.param(AGENT, matter("description: HW-DR-0052"), id="E08"),
        pytest.param(COMMAND, matter("description: HW-DR-0052"), id="E09"),
        pytest.param(SKILL, matter("description: x", "when_to_use: HW-DR-0052"), id="E10-skill"),
        pytest.param(
            COMMAND, matter("description: x", "when_to_use: >", "  a", "  HW-DR-0052"), id="E10"
        ),
        pytest.param(SKILL, matter("description: x", "when-to-use: HW-DR-0052"), id="E11"),
        pytest.param(COMMAND, "HW-DR-0052 first\n\nlater\n", id="E12"),
        pytest.param(COMMAND, "\n\n# HW-DR-0052\n", id="E12-heading"),
        pytest.param(COMMAND, matter("model: x", body="\n## HW-DR-0052 first"), id="E13"),
        pytest.param(".claude/commands/area/find.md", "HW-DR-0052\n", id="E16"),
        pytest.param(".claude/skills/a/b/SKILL.md", matter("description: HW-DR-0052"), id="deep"),
        pytest.param(SKILL, matter("name: x", body="HW-DR-0052"), id="a-skill-of-no-description"),
        pytest.param(SKILL, matter("description: a: b: HW-DR-0052"), id="no-YAML"),
        pytest.param(".claude/CLAUDE.md", "x\nHW-DR-0052\n", id="E18-claude"),
        pytest.param("CLAUDE.local.md", "HW-DR-0052", id="E18-local"),
        pytest.param("AGENTS.md", "HW-DR-0052", id="E18-agents"),
        pytest.param(".claude/rules/zz.md", "HW-DR-0052", id="E18-rule"),
        pytest.param(
            ".claude/rules/area/zz.md", matter("paths: src/**", body="HW-DR-0052"), id="E18-paths"
        ),
        pytest.param(".claude/output-styles/terse.md", "first\n\nHW-DR-0052\n", id="style"),
        pytest.param("CLAUDE.md", "- a\n- ```\n  HW-DR-0052\n  ```\n", id="in-code"),
    ],
)
def test_text_that_every_session_starts_with_leaks(
    tmp_path: Path, newline: str, path: str, content: str
) -> None:
    plant(tmp_path, {path: content.replace("\n", newline)})
    assert names(tmp_path) == [path]


@pytest.mark.parametrize("newline", ["\n", "\r\n"], ids=["LF", "CRLF"])
def test_a_string_that_a_line_end_breaks_is_found(tmp_path: Path, newline: str) -> None:
    plant(tmp_path, {"CLAUDE.md": f"its status:{newline}current"})
    assert [leak.string for leak in leaks(tmp_path).found] == ["status: current"]


@pytest.mark.parametrize(
    ("path", "content"),
    [
        pytest.param(SKILL, matter("description: x", body="HW-DR-0052"), id="E03"),
        pytest.param(COMMAND, matter("model: x", body="first\nHW-DR-0052"), id="E14"),
        pytest.param(COMMAND, "first\nHW-DR-0052\n", id="E14-bare"),
        pytest.param(COMMAND, matter("description: x", body="HW-DR-0052"), id="E15"),
        pytest.param(AGENT, matter("description: x", body="HW-DR-0052"), id="an-agents-body"),
        pytest.param(SKILL, matter("description: x", "author: HW-DR-0052"), id="another-key"),
        pytest.param("docs/a.md", "HW-DR-0052", id="a-document"),
        pytest.param(".claude/settings.json", '{"x": "HW-DR-0052"}', id="settings"),
        pytest.param(".claude/skills/a/more.md", "HW-DR-0052", id="beside-a-skill"),
    ],
)
def test_text_that_is_read_on_demand_does_not_leak(tmp_path: Path, path: str, content: str) -> None:
    plant(tmp_path, {path: content})
    assert names(tmp_path) == []


def test_an_import_is_relative_to_the_file_that_imports_it_e19(tmp_path: Path) -> None:
    plant(
        tmp_path,
        {
            "CLAUDE.md": "See @notes/extra.md, first.\n",
            "notes/extra.md": "and\n@deeper.md",
            "notes/deeper.md": STRING,
            "deeper.md": "no",
        },
    )
    assert names(tmp_path) == ["notes/deeper.md"]


def test_imports_are_followed_five_deep_and_no_further_e28(tmp_path: Path) -> None:
    chain = {f"n{number}.md": f"@n{number + 1}.md {STRING}" for number in range(1, 9)}
    plant(tmp_path, {"CLAUDE.md": "@n1.md", **chain})
    assert names(tmp_path) == ["n1.md", "n2.md", "n3.md", "n4.md", "n5.md"]


def test_a_file_reached_late_and_early_is_followed_from_early(tmp_path: Path) -> None:
    chain = {f"n{number}.md": f"@n{number + 1}.md" for number in range(1, 6)}
    files = {"CLAUDE.md": "@n1.md", **chain, "n6.md": STRING, "AGENTS.md": "@n5.md"}
    plant(tmp_path, files)
    assert names(tmp_path) == ["n6.md"]


def test_a_ring_of_imports_ends(tmp_path: Path) -> None:
    plant(tmp_path, {"CLAUDE.md": "@a.md", "a.md": "@CLAUDE.md @a.md " + STRING})
    assert names(tmp_path) == ["a.md"]


@pytest.mark.parametrize("written", ["@~/secret.md", "@../secret.md", "@/secret.md", "@a/../../x"])
def test_an_import_from_outside_is_not_followed_e28(tmp_path: Path, written: str) -> None:
    plant(tmp_path, {"secret.md": STRING, "x": STRING, "tree/CLAUDE.md": written})
    assert names(tmp_path / "tree") == []


def test_an_import_by_the_sessions_own_path_is_followed(tmp_path: Path) -> None:
    assert os.fsencode(WORKSPACE) == SESSION_PATH
    plant(tmp_path, {".claude/CLAUDE.md": f"@{WORKSPACE}/docs/a.md", "docs/a.md": STRING})
    assert names(tmp_path) == ["docs/a.md"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("@a.md and @b/c.md", ("a.md", "b/c.md")),
        ("mail@a.md", ()),
        ("`@a.md` and ``x ` @b.md``", ()),
        ("```\n@a.md\n```\n@b.md", ("b.md",)),
        ("~~~\n@a.md\n```\n~~~\n@b.md", ("b.md",)),
        ("@with\\ space.md", ("with space.md",)),
        ("@~/x.md", ()),
    ],
)
def test_what_counts_as_an_import(text: str, found: tuple[str, ...]) -> None:
    assert imports_of(text) == found


def test_a_link_is_reported_once_under_the_first_name_e22(tmp_path: Path) -> None:
    plant(tmp_path, {"CLAUDE.md": STRING})
    (tmp_path / "AGENTS.md").symlink_to("CLAUDE.md")
    assert names(tmp_path) == ["CLAUDE.md"]


def test_links_are_followed_within_the_tree_alone(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    plant(tmp_path, {"outside.md": STRING, "tree/shared/one/SKILL.md": matter(f"name: {STRING}")})
    (tree / ".claude").mkdir()
    (tree / ".claude" / "skills").symlink_to("../shared")
    (tree / "CLAUDE.md").symlink_to(tmp_path / "outside.md")
    (tree / "CLAUDE.local.md").symlink_to("../outside.md")
    (tree / "AGENTS.md").symlink_to(f"{WORKSPACE}/shared/one/SKILL.md")
    (tree / ".claude" / "agents").symlink_to("agents")
    assert names(tree) == ["AGENTS.md"]
    (tree / "AGENTS.md").unlink()
    assert names(tree) == [".claude/skills/one/SKILL.md"]


def test_a_file_that_cannot_be_read_is_nine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(tmp_path, {"CLAUDE.md": "x"})

    def closed(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", closed)
    with pytest.raises(Refusal, match=r"CLAUDE\.md") as refused:
        loaded_text(tmp_path)
    assert refused.value.code == ExitCode.NAMED


def test_a_probe_without_a_string_is_undeclared_e24(tmp_path: Path) -> None:
    found = leaks(tmp_path, DECLARATION, "PROBE-FIX-none", PROBE)
    assert found.lines() == ("undeclared PROBE-FIX-none",)
    found.require_none("the tree")


def test_a_configuration_directory_is_read_like_a_workspace_e26_e27(tmp_path: Path) -> None:
    tree, directory = tmp_path / "tree", tmp_path / "config"
    tree.mkdir()
    directory.mkdir()
    assert file_leaks(tree, DECLARATION, [PROBE], configuration=directory).found == ()
    plant(
        directory,
        {"CLAUDE.md": STRING, "skills/planted/SKILL.md": matter(f"description: {STRING}")},
    )
    found = file_leaks(tree, DECLARATION, [PROBE], configuration=directory).found
    assert [leak.name for leak in found] == ["config:CLAUDE.md", "config:skills/planted/SKILL.md"]


def listing(**tools: Sequence[str]) -> Mapping[str, Sequence[str]]:
    return tools


def test_what_a_server_says_of_its_tools_leaks_e25(tmp_path: Path) -> None:
    tools = listing(find=["Finds.", "The id, such as HW-DR-0052"], other=["x"])
    asked: list[Path] = []

    def lister(workspace: Path) -> Mapping[str, Sequence[str]]:
        asked.append(workspace)
        return tools

    assert tool_leaks(tmp_path, DECLARATION, [PROBE], lister).found == ()
    plant(tmp_path, {".mcp.json": '{"mcpServers": {"s": {}}}'})
    assert tool_leaks(tmp_path, DECLARATION, ["PROBE-FIX-none"], lister).found == ()
    assert asked == []
    found = tool_leaks(tmp_path, DECLARATION, [PROBE], lister)
    assert [leak.line() for leak in found.found] == [f"leak {PROBE} mcp:find HW-DR-0052"]
    assert asked == [tmp_path]


def test_a_tool_is_reported_by_its_servers_own_name_for_it(tmp_path: Path) -> None:
    plant(tmp_path, {".mcp.json": '{"mcpServers": {"s": {}}}'})
    tools = listing(mcp__s__find_it=[STRING], mcp__s=[STRING])
    found = tool_leaks(tmp_path, DECLARATION, [PROBE], lambda _: tools).found
    assert [leak.name for leak in found] == ["mcp:find_it", "mcp:s"]


def test_a_file_that_declares_no_server_asks_none(tmp_path: Path) -> None:
    plant(tmp_path, {".mcp.json": '{"mcpServers": {}}'})
    assert tool_leaks(tmp_path, DECLARATION, [PROBE], None).found == ()


def test_a_declared_server_that_nothing_can_list_is_three_e29(tmp_path: Path) -> None:
    plant(tmp_path, {".mcp.json": '{"mcpServers": {"s": {}}}'})
    with pytest.raises(Refusal, match=r"\.mcp\.json") as refused:
        tool_leaks(tmp_path, DECLARATION, [PROBE], None)
    assert refused.value.code == ExitCode.MISSING


def test_a_server_that_lists_no_tool_is_eight_p20(tmp_path: Path) -> None:
    plant(tmp_path, {".mcp.json": '{"mcpServers": {"s": {}}}'})
    with pytest.raises(Refusal, match="no tool") as refused:
        tool_leaks(tmp_path, DECLARATION, [PROBE], lambda _: {})
    assert refused.value.code == ExitCode.INSTRUMENT


def test_a_leak_holds_no_name_of_the_probe_e30(tmp_path: Path) -> None:
    """The guard's search by name passes such a tree, which is why the strings are declared."""
    plant(tmp_path, {SKILL: matter(f"description: {STRING}")})
    subject = Subject(b"docs/probes/x-y.md", PROBE.encode(), b"x-y", False, True, PROBE)
    text = "\n".join(loaded.text for loaded in loaded_text(tmp_path))
    assert Names([subject]).found(text.encode()) == ()
    assert names(tmp_path) == [SKILL]


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=20)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=WORDS, after=WORDS, break_at=st.sampled_from([" ", "\n", "\r\n", "\n  ", "\t"]))
def test_a_string_anywhere_in_a_text_is_found(before: str, after: str, break_at: str) -> None:
    broken = "status: current".replace(" ", break_at)
    found = find_leaks([Loaded("x", f"{before}{broken}{after}")], DECLARATION, [PROBE])
    assert "status: current" in [leak.string for leak in found.found]


@given(st.binary(max_size=120))
def test_any_bytes_are_listed_without_an_error(content: bytes) -> None:
    assert isinstance(listed_of(content, body=True), str)
    assert isinstance(listed_of(b"---\n" + content + b"\n---\n", body=False), str)
