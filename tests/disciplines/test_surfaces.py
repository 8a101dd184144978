"""The surfaces: a repository's changes, one call of the harness, the verb and what it explains."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import UNSET

from recorder.cli import app
from recorder.disciplines import verdicts
from recorder.disciplines.artifacts import (
    Artifact,
    artifact_findings,
    artifacts_of,
    other_files,
)
from recorder.disciplines.changes import Change, collect
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.sessions import kept_content, tree_of
from recorder.disciplines.values import ABSENT, UNPROVEN
from recorder.disciplines.verdicts import (
    HOOK,
    RECORDED_CALL,
    World,
    git_surface,
    row_of,
    verdict_of,
    verdicts_of,
)
from recorder.refusal import Refusal
from recorder.transform.produced import ProducedFile
from recorder.workspace.manifest import digest_of, manifest_of
from tests.disciplines.made import Call, Made, entry, rules, stream

POST = {"it": [{"op": "source", "of": "post"}, {"op": "matches", "re": "bad"}]}
HISTORY = {"it": [{"op": "source", "of": "s"}, {"op": "toolUses"}]}
SESSION = {"s": {"transcript": True}}


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(app, "interrupt_on_signals", lambda: None)

    def run_in_process(*arguments: str | Path, given: str = "") -> Ran:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["recorder", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
        code = app.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ran(int(code), said.out, said.err)

    return run_in_process


# A repository --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repository:
    root: Path

    def git(self, *arguments: str) -> str:
        return subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e@example.test", *arguments],
            cwd=self.root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def write(self, path: str, content: str | bytes) -> Path:
        full = self.root / path
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_bytes(content.encode() if isinstance(content, str) else content)
        return full

    def commit(self, name: str = "c") -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", name)
        return self.git("rev-parse", "HEAD")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    root = tmp_path / "repository"
    root.mkdir()
    made = Repository(root)
    made.git("init", "-q", "-b", "main")
    return made


def changes(repository: Repository, what: str) -> dict[str, tuple[str, Any, Any]]:
    found = collect(repository.root, what).changes
    assert [each.path for each in found] == sorted(each.path for each in found)
    return {each.path: (each.kind, each.pre, each.post) for each in found}


def test_staged_is_the_head_and_the_index_never_the_worktree(repository: Repository) -> None:
    repository.write("a", "one")
    repository.write("gone", "g")
    repository.commit()
    repository.write("a", "two")
    repository.write("new", "n")
    (repository.root / "gone").unlink()
    repository.git("add", "-A")
    repository.write("a", "three")
    repository.write("untracked", "u")
    assert changes(repository, "staged") == {
        "a": ("modified", "one", "two"),
        "gone": ("deleted", "g", ABSENT),
        "new": ("added", ABSENT, "n"),
    }
    assert collect(repository.root, "staged").file("a") == "two"


def test_worktree_is_the_head_and_the_disk(repository: Repository) -> None:
    repository.write("a", "one")
    repository.write("gone", "g")
    repository.write(".gitignore", "ignored\n")
    repository.commit()
    repository.write("a", "two")
    repository.write("untracked", "u")
    repository.write("ignored", "i")
    repository.write("index-only", "x")
    repository.git("add", "index-only")
    (repository.root / "index-only").unlink()
    (repository.root / "gone").unlink()
    (repository.root / "dangling").symlink_to("nowhere")
    assert changes(repository, "worktree") == {
        "a": ("modified", "one", "two"),
        "dangling": ("added", ABSENT, ABSENT),
        "gone": ("deleted", "g", ABSENT),
        "index-only": ("deleted", ABSENT, ABSENT),
        "untracked": ("added", ABSENT, "u"),
    }


def test_an_unborn_branch_is_all_added(repository: Repository) -> None:
    repository.write("a", "one")
    repository.git("add", "-A")
    repository.write("b", "two")
    assert changes(repository, "staged") == {"a": ("added", ABSENT, "one")}
    assert changes(repository, "worktree") == {
        "a": ("added", ABSENT, "one"),
        "b": ("added", ABSENT, "two"),
    }


def test_a_rename_is_a_deletion_and_an_addition(repository: Repository) -> None:
    repository.git("config", "diff.renames", "copies")
    repository.write("a", "text\n" * 50)
    repository.commit()
    repository.git("mv", "a", "b")
    assert {path: kind for path, (kind, _, _) in changes(repository, "staged").items()} == {
        "a": "deleted",
        "b": "added",
    }


def test_a_binary_side_has_no_text(repository: Repository) -> None:
    repository.write("a", b"x\0y")
    repository.write("b", "text")
    repository.write("c", b"\xff\xfe")
    repository.commit()
    for name in "abc":
        repository.write(name, {"a": b"now text", "b": b"\0", "c": b"ok"}[name])
    for what in ("worktree", "staged"):
        assert changes(repository, what) == {
            "a": ("modified", ABSENT, "now text"),
            "b": ("modified", "text", ABSENT),
            "c": ("modified", ABSENT, "ok"),
        }
        repository.git("add", "-A")


def test_a_change_of_type_keeps_what_was_there(repository: Repository) -> None:
    (repository.root / "a").symlink_to("target")
    repository.commit()
    (repository.root / "a").unlink()
    repository.write("a", "text")
    assert changes(repository, "worktree") == {"a": ("modified", "target", "text")}
    repository.git("add", "-A")
    assert changes(repository, "staged") == {"a": ("modified", "target", "text")}


def test_a_range_is_from_its_base_or_from_the_merge_base(repository: Repository) -> None:
    repository.write("a", "base")
    base = repository.commit()
    repository.git("checkout", "-q", "-b", "side")
    repository.write("b", "side")
    side = repository.commit()
    repository.git("checkout", "-q", "main")
    repository.write("a", "main")
    repository.commit()
    assert changes(repository, f"{base}..side") == {"b": ("added", ABSENT, "side")}
    assert changes(repository, "main..side") == {
        "a": ("modified", "main", "base"),
        "b": ("added", ABSENT, "side"),
    }
    assert changes(repository, "main...side") == {"b": ("added", ABSENT, "side")}
    assert collect(repository.root, "main...side").file("a") == "base"
    assert side


def test_a_branch_that_shares_its_name_with_a_file_is_a_branch(repository: Repository) -> None:
    repository.write("main", "x")
    repository.commit()
    repository.git("branch", "side")
    repository.write("main", "y")
    repository.commit()
    assert changes(repository, "side..main") == {"main": ("modified", "x", "y")}


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("HEAD", "is none of staged, worktree"),
        ("nowhere..HEAD", "nowhere is no commit"),
        ("..HEAD", "is none of"),
        ("--output=x..HEAD", "is no commit"),
        ("HEAD...orphan", "have no merge base"),
    ],
)
def test_a_range_that_cannot_be_resolved(repository: Repository, what: str, said: str) -> None:
    repository.write("a", "x")
    repository.commit()
    repository.git("checkout", "-q", "--orphan", "orphan")
    repository.commit("o")
    repository.git("checkout", "-q", "main")
    with pytest.raises(Refusal, match=said):
        collect(repository.root, what)


def test_outside_a_repository(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="not a git repository"):
        collect(tmp_path, "staged")


def test_a_name_that_is_not_utf8_and_one_with_a_newline(repository: Repository) -> None:
    (repository.root / "a\nb").write_text("x")
    (repository.root / os.fsdecode(b"\xff")).write_text("y")
    repository.git("add", "-A")
    assert set(changes(repository, "staged")) == {"a\nb", "\\xff"}


def test_a_pair_is_judged_over_the_whole_commit(repository: Repository, run: Run) -> None:
    pair = {
        "id": "pair",
        "enforce": "block",
        "declare": {
            "mechanism": "companion",
            "extract": {
                "en": [
                    {"op": "source", "of": "changes"},
                    {"op": "items"},
                    {"op": "keyByPattern", "re": "^(.+?)(?<!\\.ko)\\.md$"},
                ],
                "ko": [
                    {"op": "source", "of": "changes"},
                    {"op": "items"},
                    {"op": "keyByPattern", "re": "^(.+)\\.ko\\.md$"},
                ],
            },
            "relate": [
                {
                    "id": "both",
                    "relation": {"op": "implies", "of": "en", "requires": "ko"},
                    "message": "{value} alone",
                }
            ],
        },
    }
    file = repository.root.parent / "rules.json"
    file.write_bytes(rules(pair))
    repository.write("x.md", "1")
    repository.git("add", "-A")
    judge = ("judge", "--git", "staged", "--repository", repository.root, "-d", file)
    refused = run(*judge)
    assert refused.code == 1
    assert refused.err == "discipline 'pair' broken on x.md: x.md alone\n"
    assert run(*judge, "--enforce", "advise").code == 0
    repository.write("x.ko.md", "1")
    repository.git("add", "x.ko.md")
    assert run(*judge).code == 0
    log = repository.root / ".recorder" / "disciplines.log"
    assert [line.split("\t")[1] for line in log.read_text().splitlines()] == [
        "blocked",
        "advised",
        "passed",
    ]
    # The log is not part of any change.
    assert "log" not in str(changes(repository, "worktree"))


def test_a_commit_has_no_session_no_actor_and_no_command(repository: Repository) -> None:
    repository.write("a", "x")
    worlds = collect(repository.root, "worktree").worlds()
    entries = load_disciplines(
        rules(
            entry("passes", HISTORY, sources=SESSION, supply="pass"),
            entry("errs", HISTORY, sources=SESSION, supply="error"),
            entry("other", HISTORY, sources=SESSION, supply="pass", scope="pre"),
            entry("line", {"it": [{"op": "source", "of": "command"}]}, scope="command"),
            entry("who", {"it": [{"op": "source", "of": "actor"}]}, supply="error"),
        ),
        "r",
    ).entries
    found = verdicts_of(entries, worlds, git_surface("advise"))
    assert [(v.entry, v.event, v.skip) for v in found] == [
        ("passes", "skipped", "supply-pass"),
        ("errs", "skipped", "no-observation"),
        ("who", "blocked", None),
    ]


# Verdicts ------------------------------------------------------------------------------------


def one(identifier: str = "e", extract: Any = None, **more: Any) -> Any:
    return load_disciplines(rules(entry(identifier, extract or POST, **more)), "r").entries[0]


def seen(path: str, post: Any, **more: Any) -> World:
    return World(subject=path, path=path, post=post, **more)


@pytest.mark.parametrize(
    ("enforce", "level", "event"),
    [
        (None, None, "advised"),
        ("advise", None, "advised"),
        ("block", None, "blocked"),
        ("block", "advise", "advised"),
        ("block", "block", "blocked"),
        (None, "block", "advised"),
    ],
)
def test_the_lenient_level_wins(enforce: str | None, level: Any, event: str) -> None:
    rule = one(**({} if enforce is None else {"enforce": enforce}))
    verdict = verdict_of(rule, [seen("a", "bad")], git_surface(level))
    assert verdict is not None
    assert verdict.event == event


def test_what_cannot_be_judged_blocks_at_either_level() -> None:
    for enforce in ("advise", "block"):
        rule = one(supply="error", enforce=enforce)
        verdict = verdict_of(rule, [World(subject="a", path="a")], git_surface("advise"))
        assert verdict is not None
        assert (verdict.event, verdict.unjudgeable) == ("blocked", "post is absent")
        assert verdict.message == "discipline 'e' cannot be judged on a: post is absent"


def test_the_first_broken_world_is_the_verdict() -> None:
    worlds = [seen("a", "good"), seen("b", "bad"), seen("c", "bad")]
    verdict = verdict_of(one(), worlds, RECORDED_CALL)
    assert verdict is not None
    assert (verdict.event, verdict.subject) == ("advised", "b")


def test_what_was_skipped_is_never_part_of_a_pass() -> None:
    verdict = verdict_of(one(supply="pass"), [seen("a", "good"), seen("b", ABSENT)], RECORDED_CALL)
    assert verdict is not None
    assert (verdict.event, verdict.subject, verdict.skip) == ("skipped", "b", "supply-pass")
    unproven = verdict_of(one(), [seen("a", "good"), seen("b", UNPROVEN)], RECORDED_CALL)
    assert unproven is not None
    assert (unproven.event, unproven.skip) == ("skipped", "no-observation")


def test_out_of_scope_has_no_verdict() -> None:
    assert verdict_of(one(), [World()], RECORDED_CALL) is None


def test_a_world_that_its_witness_opens_hides_no_other() -> None:
    rule = one()
    declared = json.loads(rules(entry("e", POST)))["disciplines"][0]
    declared["declare"]["witness"]["extract"]["no"][1]["re"] = "^open"
    rule = load_disciplines(rules(declared), "r").entries[0]
    opened = verdict_of(rule, [seen("open", "bad")], RECORDED_CALL)
    assert opened is not None
    assert opened.event == "witnessed"
    assert not opened.broken
    both = verdict_of(rule, [seen("open", "bad"), seen("b", "bad")], RECORDED_CALL)
    assert both is not None
    assert (both.event, both.subject) == ("advised", "b")


def test_an_entry_that_could_not_be_resolved_skips_where_its_scope_admits() -> None:
    bad = entry("bad", {"it": [{"op": "source", "of": "post"}, {"op": "sha256"}]})
    bad["declare"]["scope"]["include"] = ["^a"]
    rule = load_disciplines(rules(bad), "r", allow_unresolved=True).entries[0]
    assert "no step is named `sha256`" in str(rule.fault)
    verdict = verdict_of(rule, [seen("b", "x"), seen("a", "x")], RECORDED_CALL)
    assert verdict is not None
    assert row_of(0, verdict) == "1970-01-01T00:00:00.000Z\tskipped\tbad\ta\tconfig-fault"
    assert verdict_of(rule, [seen("b", "x")], RECORDED_CALL) is None


def test_a_row_is_one_line_of_fields() -> None:
    verdict = verdict_of(one("e\tx"), [seen("a\nb\tc\u2028d", "bad\n" * 100)], RECORDED_CALL)
    assert verdict is not None
    fields = row_of(1000, verdict).split("\t")
    assert fields[:4] == ["1970-01-01T00:00:01.000Z", "advised", "e x", "a b c d"]
    assert len(fields[4]) == 201
    assert fields[4].endswith("…")
    assert len(row_of(0, verdict).splitlines()) == 1


def test_a_row_names_eight_elements_and_counts_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "FIFTH_LIMIT", 10_000)
    lines = {"it": [{"op": "source", "of": "post"}, {"op": "lines"}]}
    verdict = verdict_of(one(extract=lines), [seen("a", "\n".join("abcdefghij"))], RECORDED_CALL)
    assert verdict is not None
    (listed,) = json.loads(str(verdict.fifth))
    assert listed["id"] == "r"
    assert listed["witnesses"] == [
        {"key": str(number), "value": letter} for number, letter in enumerate("abcdefgh", start=1)
    ]
    assert listed["total"] == 10
    assert verdict.message == "discipline 'e' broken on a: 1:a (+9)"


# One call ------------------------------------------------------------------------------------


def payload(root: Path, tool: str, given: dict[str, Any], **more: Any) -> str:
    return json.dumps(
        {
            "hook_event_name": "PreToolUse",
            "session_id": "s",
            "cwd": str(root),
            "tool_name": tool,
            "tool_input": given,
            "tool_use_id": "toolu_9",
            **more,
        }
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    found = tmp_path / "root"
    found.mkdir()
    (found / "a").write_text("old text")
    return found


def hooked(
    run: Run, root: Path, given: str, *entries: dict[str, Any]
) -> tuple[Ran, list[list[str]]]:
    file = root.parent / "rules.json"
    file.write_bytes(rules(*entries))
    ran = run("judge", "--hook", "-d", file, given=given)
    assert ran.out == ""
    log = root / ".recorder" / "disciplines.log"
    rows = log.read_text().splitlines() if log.exists() else []
    return ran, [row.split("\t")[1:] for row in rows]


@pytest.mark.parametrize(
    ("tool", "given"),
    [
        ("Write", {"file_path": "a", "content": "bad"}),
        ("Edit", {"file_path": "a", "old_string": "old", "new_string": "bad"}),
        ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "old", "new_string": "bad"}]}),
        ("Bash", {"command": "echo bad >> a"}),
    ],
)
def test_a_call_that_would_break_is_blocked(
    run: Run, root: Path, tool: str, given: dict[str, Any]
) -> None:
    rule = entry("no-bad", POST, enforce="block", why="it is bad")
    ran, rows = hooked(run, root, payload(root, tool, given), rule)
    assert ran.code == 2
    assert ran.err.startswith("discipline 'no-bad' broken on a: ")
    assert ran.err.rstrip().endswith("— why: it is bad")
    assert [row[:3] for row in rows] == [["blocked", "no-bad", "a"]]
    assert (root / "a").read_text() == "old text"


def test_a_call_that_breaks_an_advice_goes_on_and_is_told(run: Run, root: Path) -> None:
    given = payload(root, "Write", {"file_path": str(root / "a"), "content": "bad"})
    ran, rows = hooked(run, root, given, entry("no-bad", POST))
    assert ran.code == 0
    assert "no-bad" in ran.err
    assert rows[0][0] == "advised"


def test_a_write_that_cannot_be_computed_is_skipped(run: Run, root: Path) -> None:
    ran, rows = hooked(
        run,
        root,
        payload(root, "Bash", {"command": "sed -i s/a/b/ a"}),
        entry("no-bad", POST, enforce="block"),
    )
    assert ran.code == 0
    assert rows == [["skipped", "no-bad", "a", "no-observation"]]


def test_what_reads_the_change_set_is_skipped(run: Run, root: Path) -> None:
    given = payload(root, "Write", {"file_path": "a", "content": "x"})
    rule = entry("set", {"it": [{"op": "source", "of": "changes"}]}, enforce="block")
    ran, rows = hooked(run, root, given, rule)
    assert (ran.code, rows) == (0, [["skipped", "set", "a", "no-observation"]])


@pytest.mark.parametrize(
    "given",
    [
        "",
        "[]",
        "{",
        '{"tool_name": "Bash"}',
        '{"tool_name": "Bash", "tool_input": {}, "cwd": "/"}',
        '{"tool_name": "Edit", "tool_input": {"file_path": 1}, "cwd": "/"}',
        '{"tool_name": "", "tool_input": {}, "cwd": "/"}',
        '{"tool_name": "X", "tool_input": {}, "cwd": "relative"}',
        '{"hook_event_name": "Stop", "tool_name": "X", "tool_input": {}, "cwd": "/"}',
    ],
)
def test_a_payload_that_cannot_be_classified_blocks_with_one_row(
    run: Run, root: Path, given: str
) -> None:
    file = root.parent / "rules.json"
    file.write_bytes(rules(entry("e", POST)))
    log = root.parent / "rows.log"
    ran = run("judge", "--hook", "-d", file, "--log", log, given=given)
    assert ran.code == 2
    assert "payload" in ran.err
    (line,) = log.read_text().splitlines()
    assert line.split("\t")[1:] == ["blocked", "judge", "-"]


def test_rules_that_cannot_be_loaded_block(run: Run, root: Path) -> None:
    file = root.parent / "rules.json"
    file.write_text("disciplines: 1")
    ran = run("judge", "--hook", "-d", file, given=payload(root, "Bash", {"command": "ls"}))
    assert ran.code == 2
    assert f"{file}:1:14: `disciplines` is not a sequence" in ran.err


def test_a_rule_that_cannot_be_resolved_is_named_and_skips(run: Run, root: Path) -> None:
    bad = entry("bad", {"it": [{"op": "source", "of": "post"}, {"op": "sha256"}]}, enforce="block")
    given = payload(root, "Write", {"file_path": "a", "content": "x"})
    ran, rows = hooked(run, root, given, bad)
    assert ran.code == 0
    assert "no step is named `sha256`" in ran.err
    assert rows == [["skipped", "bad", "a", "config-fault"]]


def test_the_actor_is_the_envelope_s(run: Run, root: Path) -> None:
    rule = entry(
        "who",
        {"it": [{"op": "source", "of": "actor"}, {"op": "select", "path": "agentType"}]},
        scope="command",
        enforce="block",
    )
    command = {"command": "git commit", "agent_type": "liar"}
    assert hooked(run, root, payload(root, "Bash", command), rule)[0].code == 0
    inside = payload(root, "Bash", command, agent_type="writer")
    ran, rows = hooked(run, root, inside, rule)
    assert ran.code == 2
    assert "writer" in rows[-1][3]


def test_the_history_is_the_session_s_log_before_this_call(run: Run, root: Path) -> None:
    log = root.parent / "transcript.jsonl"
    lines = [
        {"type": "user", "message": {"content": "/allow"}, "timestamp": "2025-06-01T12:00:00Z"},
        {"type": "user", "isMeta": True, "message": {"content": "/meta"}},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    text += stream(
        [Call("Bash", {"command": "npm view"}, False), Call("Bash", {"command": "ok"})]
    ).decode()
    log.write_text(text)
    needs = {
        "it": [
            {"op": "source", "of": "s"},
            {"op": "toolUses", "names": ["Bash"]},
            {"op": "filter", "when": [{"field": "succeeded", "eq": True}]},
            {"op": "select", "path": "args.command"},
            {"op": "matches", "re": "npm view"},
        ]
    }
    turns = {"it": [{"op": "source", "of": "s"}, {"op": "userTexts", "re": "^/meta"}]}
    said = {"it": [{"op": "source", "of": "s"}, {"op": "userTexts", "re": "^/allow"}]}
    given = payload(root, "Write", {"file_path": "a", "content": "x"}, transcript_path=str(log))
    ran, rows = hooked(
        run,
        root,
        given,
        entry("ran", needs, "nonEmpty", sources=SESSION),
        entry("meta", turns, "nonEmpty", sources=SESSION),
        entry("said", said, "nonEmpty", sources=SESSION),
    )
    assert ran.code == 0
    assert [row[0] for row in rows] == ["advised", "advised", "passed"]


def test_this_call_is_not_its_own_precedent(run: Run, root: Path) -> None:
    log = root.parent / "transcript.jsonl"
    log.write_bytes(stream([Call("Bash", {"command": "ls"}, None)]))
    for identifier, event in (("toolu_1", "passed"), ("toolu_2", "advised")):
        given = payload(
            root, "Bash", {"command": "ls"}, transcript_path=str(log), tool_use_id=identifier
        )
        _, rows = hooked(run, root, given, entry("none", HISTORY, sources=SESSION, scope="command"))
        assert rows[-1][0] == event


def test_a_bound_file_that_the_call_changes_is_read_as_the_call_would_leave_it(
    run: Run, root: Path
) -> None:
    rule = entry(
        "bound",
        {"it": [{"op": "source", "of": "f"}, {"op": "matches", "re": "bad"}]},
        sources={"f": {"file": "a"}},
        enforce="block",
    )
    given = payload(root, "Write", {"file_path": "a", "content": "bad"})
    assert hooked(run, root, given, rule)[0].code == 2
    other = payload(root, "Write", {"file_path": "b", "content": "bad"})
    assert hooked(run, root, other, rule)[0].code == 0


def test_a_session_without_a_log_has_no_history(run: Run, root: Path) -> None:
    given = payload(root, "Write", {"file_path": "a", "content": "x"}, transcript_path="/none")
    ran, rows = hooked(
        run, root, given, entry("h", HISTORY, sources=SESSION, supply="pass", enforce="block")
    )
    assert (ran.code, rows) == (0, [["skipped", "h", "a", "supply-pass"]])


def test_the_spawns_are_what_the_harness_keeps_beside_its_log(run: Run, root: Path) -> None:
    log = root.parent / "t.jsonl"
    log.write_text("")
    folder = root.parent / "t" / "subagents"
    folder.mkdir(parents=True)
    (folder / "agent-1.meta.json").write_text('{"agentType": "writer"}')
    spawned = {
        "it": [{"op": "source", "of": "s"}, {"op": "json"}, {"op": "agentType", "is": "writer"}]
    }
    given = payload(root, "Write", {"file_path": "a", "content": "x"}, transcript_path=str(log))
    _, rows = hooked(
        run, root, given, entry("w", spawned, "nonEmpty", sources={"s": {"sidecar": True}})
    )
    assert rows == [["passed", "w", "a"]]


def test_a_log_that_cannot_be_written_changes_no_verdict(run: Run, root: Path) -> None:
    file = root.parent / "rules.json"
    file.write_bytes(rules(entry("no-bad", POST, enforce="block")))
    given = payload(root, "Write", {"file_path": "a", "content": "bad"})
    ran = run("judge", "--hook", "-d", file, "--log", root.parent / "no" / "x.log", given=given)
    assert ran.code == 2
    assert "no row was written" in ran.err


def test_a_path_outside_the_root_is_no_world(run: Run, root: Path) -> None:
    given = payload(root, "Write", {"file_path": "../b", "content": "bad"})
    ran, rows = hooked(run, root, given, entry("no-bad", POST, enforce="block"))
    assert (ran.code, rows) == (0, [])
    assert HOOK.session


# The verb ------------------------------------------------------------------------------------


@pytest.fixture
def recorded(tmp_path: Path) -> Made:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("x")
    made = Made(tmp_path / "out", tree)
    made.begin()
    given = {"file_path": "/workspace/b", "content": "bad"}
    made.session([Call("Write", given)], {"b": b"bad"})
    return made


def test_a_batch_keeps_its_rows_and_says_them(run: Run, recorded: Made, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(rules(entry("no-bad", POST)))
    ran = run("judge", recorded.out, "--disciplines", file, "--corpus", recorded.tree)
    assert ran.code == 0
    assert "call 1: advised: discipline 'no-bad' broken on b" in ran.out
    log = (recorded.out / "disciplines.log").read_text()
    assert log.split("\t")[1:4] == ["advised", "no-bad", "L1-campaign-present-p1-r1:b"]
    kept = json.loads((recorded.out / "disciplines.json").read_text())
    assert kept["sessions"][0]["verdicts"][0]["call"] == 1
    assert (
        run("judge", recorded.out, "-d", file, "--json").out
        == json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    )


def test_one_session_is_judged_and_nothing_is_written_into_it(
    run: Run, recorded: Made, tmp_path: Path
) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(rules(entry("no-bad", POST)))
    (session,) = recorded.sessions
    before = sorted(session.iterdir())
    assert run("judge", session, "-d", file).code == 0
    assert sorted(session.iterdir()) == before


def test_what_each_entry_does_on_each_surface(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    listed = [
        entry("path", POST, enforce="block"),
        entry("line", {"it": [{"op": "source", "of": "command"}]}, scope="command"),
        entry("past", HISTORY, sources=SESSION, supply="pass"),
        entry("past-errs", HISTORY, sources=SESSION, supply="error"),
        entry("set", {"it": [{"op": "source", "of": "changes"}]}),
        {"id": "later", "why": "not yet", "draft": True},
    ]
    file.write_bytes(rules(*listed))
    lines = {
        each["id"]: each for each in json.loads(run("judge", "explain", "-d", file, "--json").out)
    }
    opens = ", its witness opens"
    assert lines["path"]["enforce"] == "enforce: block"
    assert lines["path"]["git"] == lines["path"]["hook"] == f"blocks{opens}"
    assert lines["line"]["enforce"] == ""
    assert lines["line"]["git"] == "never admitted (no command)"
    assert lines["past"]["git"] == "skipped (supply-pass)"
    assert lines["past-errs"]["git"] == "skipped (no-observation)"
    assert lines["set"]["hook"] == "skipped (no-observation)"
    assert lines["set"]["session"] == f"advises{opens}, once a session"
    assert {lines["later"][name] for name in ("session", "git", "hook")} == {"unpromoted"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("judge",), "name a file of disciplines"),
        (("judge", "-d", "/none"), "name a file of disciplines"),
        (("judge", "/none", "-d", "RULES"), "holds no session that ended"),
        (("judge", "-d", "RULES"), "name a batch's or a session's directory"),
        (
            ("judge", "--git", "staged", "--enforce", "warn", "-d", "RULES"),
            "neither block nor advise",
        ),
    ],
)
def test_a_call_of_the_verb_that_says_nothing(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(rules(entry("e", POST)))
    ran = run(*(str(file) if each == "RULES" else each for each in arguments))
    assert ran.code == 2
    assert said in ran.err


# Findings ------------------------------------------------------------------------------------


def test_an_artifact_s_findings_are_the_entries_it_breaks_and_a_key_only_where_judged() -> None:
    disciplines = load_disciplines(
        rules(
            entry("z-bad", POST),
            entry("a-bad", POST),
            entry("other", {"it": [{"op": "source", "of": "f"}]}, sources={"f": {"file": "f"}}),
            entry("not-of-it", HISTORY, sources=SESSION, supply="error"),
            entry("set", {"it": [{"op": "source", "of": "changes"}]}, supply="error"),
        ),
        "r",
    )
    found = artifact_findings(
        disciplines,
        [
            Artifact("a", ABSENT, "bad"),
            Artifact("b", ABSENT, "good"),
            Artifact("c", ABSENT, UNPROVEN),
        ],
    )
    assert found.broken == {"a": ("a-bad", "z-bad"), "b": ()}
    file = ProducedFile("b", "sha256:x", ())
    assert found.attach(file).findings == ()
    # A command's findings stand beside, and alone nowhere that an entry could not say.
    reported = ProducedFile("a", "sha256:x", (), ("b-command", "z-bad"))
    assert found.attach(reported).findings == ("a-bad", "b-command", "z-bad")
    assert found.not_judged == {"c"}
    assert found.attach(replace(reported, path="c")).findings is UNSET
    assert found.attach(replace(reported, path="d")) == replace(reported, path="d")


def test_no_entry_that_admits_an_artifact_is_no_list() -> None:
    rule = entry("e", POST)
    rule["declare"]["scope"]["include"] = ["^docs/"]
    found = artifact_findings(load_disciplines(rules(rule), "r"), [Artifact("a", ABSENT, "bad")])
    assert found.broken == {}
    assert Change("a", "added", ABSENT, "x").kind == "added"


def test_the_artifacts_of_a_session_are_its_kept_files(recorded: Made) -> None:
    (session,) = recorded.sessions
    manifest = manifest_of(recorded.tree)
    kept = kept_content(session / "produced")
    baseline = tree_of(manifest, [recorded.tree])
    files = [
        ProducedFile("b", digest_of(b"bad"), ()),
        ProducedFile("a", digest_of(b"lost"), ()),
        ProducedFile("gone", "", ()),
        ProducedFile("/tmp/x", digest_of(b"bad"), ()),
    ]
    made = artifacts_of(files, baseline, kept)
    assert made == (Artifact("b", ABSENT, "bad"), Artifact("a", "x", UNPROVEN))
    assert other_files(baseline)("a") == "x"
    assert other_files(baseline, ["a"])("a") is ABSENT
    rule = load_disciplines(rules(entry("no-bad", POST)), "r")
    found = artifact_findings(rule, made, other_files(baseline))
    assert [found.attach(file).findings for file in files] == [("no-bad",), UNSET, UNSET, UNSET]


# What a repository, a session or a payload can name ------------------------------------------


def armed(repository: Repository, marker: Path) -> None:
    """Every program that a repository's settings can name leaves a mark where it runs."""
    program = repository.root / "program.sh"
    program.write_text(f'#!/bin/sh\necho "$0" >> {marker}\ncat\n')
    program.chmod(0o755)
    hooks = repository.root / ".git" / "hooks"
    hooks.mkdir(exist_ok=True)
    for name in ("post-index-change", "pre-commit", "fsmonitor-watchman"):
        (hooks / name).write_bytes(program.read_bytes())
        (hooks / name).chmod(0o755)
    info = repository.root / ".git" / "info"
    info.mkdir(exist_ok=True)
    (info / "attributes").write_text("* diff=evil filter=ev=il\n")
    config = repository.root / ".git" / "config"
    config.write_text(
        config.read_text()
        + f"[core]\n fsmonitor = {program}\n pager = {program}\n sshCommand = {program}\n"
        + f'[diff]\n external = {program}\n[diff "evil"]\n textconv = {program}\n'
        + f'[filter "ev=il"]\n clean = {program}\n smudge = {program}\n required = true\n'
    )


def test_no_program_that_a_repository_names_is_run(repository: Repository, tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    repository.write("a", "one\n")
    repository.commit()
    repository.write("a", "two\n")
    repository.commit()
    armed(repository, marker)
    # The same size and another time: git compares the content, through a filter where it has one.
    os.utime(repository.root / "a", (1, 1))
    for what in ("worktree", "staged", "HEAD~1..HEAD", "HEAD~1...HEAD"):
        collect(repository.root, what)
    assert not marker.exists()


def test_an_object_that_a_partial_clone_left_out_is_not_fetched(
    repository: Repository, tmp_path: Path
) -> None:
    marker = tmp_path / "ran"
    repository.write("a", "one\n")
    repository.commit()
    repository.write("a", "two\n")
    repository.commit()
    armed(repository, marker)
    config = repository.root / ".git" / "config"
    config.write_text(
        config.read_text() + f'[extensions]\n partialClone = o\n[protocol "ext"]\n allow = always\n'
        f'[remote "o"]\n promisor = true\n url = ext::{repository.root}/program.sh\n'
    )
    name = subprocess.run(
        ["git", "-c", "core.fsmonitor=false", "rev-parse", "HEAD:a"],
        cwd=repository.root,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    (repository.root / ".git" / "objects" / name[:2] / name[2:]).unlink()
    with pytest.raises(Refusal):
        collect(repository.root, "HEAD~1..HEAD")
    assert not marker.exists()


def test_a_pipe_in_the_worktree_is_not_waited_for(repository: Repository) -> None:
    repository.write("a", "one\n")
    repository.commit()
    (repository.root / "a").unlink()
    os.mkfifo(repository.root / "a")
    assert changes(repository, "worktree")["a"] == ("modified", "one\n", ABSENT)


@pytest.mark.parametrize("put", ["link", "folder", "pipe"])
def test_rows_are_appended_to_a_plain_file_alone(
    repository: Repository, run: Run, tmp_path: Path, put: str
) -> None:
    """A repository can hold a link there, to a file that a shell reads."""
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = repository.root / ".recorder"
    if put == "folder":
        folder.symlink_to(outside)
    else:
        folder.mkdir()
        log = folder / "disciplines.log"
        os.mkfifo(log) if put == "pipe" else log.symlink_to(outside / "profile")
    repository.write("a", "bad\n")
    file = tmp_path / "rules.json"
    file.write_bytes(rules(entry("e", POST)))
    ran = run("judge", "--git", "worktree", "--repository", repository.root, "-d", file)
    assert ran.code == 2, ran
    assert list(outside.iterdir()) == []


@pytest.mark.parametrize("where", ["pipe", "/dev/zero", "\0", "directory"])
def test_a_log_that_is_none_is_no_history(run: Run, root: Path, where: str) -> None:
    os.mkfifo(root / "pipe")
    (root / "directory").mkdir()
    named = where if where.startswith(("/", "\0")) else str(root / where)
    written = payload(root, "Write", {"file_path": "a", "content": "x"}, transcript_path=named)
    ran, rows = hooked(run, root, written, entry("e", HISTORY, "nonEmpty", sources=SESSION))
    assert ran.code == 0
    assert [row[0] for row in rows] == ["advised"]


def test_what_is_said_of_a_path_moves_no_cursor(run: Run, root: Path) -> None:
    written = payload(root, "Write", {"file_path": "a\x1b]0;x\x07", "content": "bad\x1b[2J"})
    ran, _ = hooked(run, root, written, entry("e", POST))
    assert "\x1b" not in ran.err
    assert "a\\x1b]0" in ran.err


def test_what_is_explained_moves_no_cursor(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_bytes(rules(entry("e\x1b]0;x", POST)))
    ran = run("judge", "explain", "-d", file)
    assert "\x1b" not in ran.out
    assert "e\\x1b]0;x" in ran.out
