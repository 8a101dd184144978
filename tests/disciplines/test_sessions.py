"""Recorded sessions as worlds: replay, what is unproven, history cut before a call, verdicts."""

from __future__ import annotations

import json
import random
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recorder.disciplines.history import UserTurn, read_history
from recorder.disciplines.judging import World
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.rates import first_breaks, rates_by_arm
from recorder.disciplines.replay import Ended, Replay, Tree, replay
from recorder.disciplines.sessions import BatchVerdicts, judge_batch, log_of
from recorder.disciplines.values import ABSENT, UNPROVEN
from recorder.refusal import Refusal
from recorder.transform.produced import Places
from recorder.workspace.manifest import digest_of
from tests.disciplines.made import Call, Made, entry, rules, stream

SOURCE_POST = {"it": [{"op": "source", "of": "post"}]}


def replayed(
    calls: list[Call],
    before: dict[str, str] | None = None,
    after: dict[str, bytes] | None = None,
    **ended: Any,
) -> Replay:
    """Calls over a tree of texts that are all known, to a workspace that holds ``after``."""
    tree = {path: text.encode() for path, text in (before or {}).items()}
    final = after or {}
    history = read_history([stream(calls)], [UserTurn("Do it.", 1748779200000)])
    content = {digest_of(each): each for each in final.values()}
    changed = {p: digest_of(c) for p, c in final.items() if tree.get(p) != c}
    members: dict[str, Any] = {
        "digests": changed,
        "removed": frozenset(),
        "complete": True,
        "unread": frozenset(),
        **ended,
    }
    return replay(
        history,
        Tree({p: digest_of(c) for p, c in tree.items()}, tree.get),
        Ended(content=content.get, **members),
        Places(("/workspace",)),
    )


def write(path: str, content: str, **more: Any) -> Call:
    return Call("Write", {"file_path": f"/workspace/{path}", "content": content}, **more)


def edit(path: str, old: str, new: str, **more: Any) -> Call:
    given = {"file_path": f"/workspace/{path}", "old_string": old, "new_string": new}
    return Call("Edit", given, **more)


def shell(command: str, **more: Any) -> Call:
    return Call("Bash", {"command": command}, **more)


def world(made: Replay, number: int, path: str | None = None) -> World:
    (found,) = [
        each
        for observation in made.observations
        if observation.number == number
        for each in observation.worlds
        if path is None or each.path == path
    ]
    return found


def test_a_file_before_and_after_each_call() -> None:
    made = replayed(
        [write("a", "one\n"), edit("a", "one", "two"), shell("echo three >> a")],
        {},
        {"a": b"two\nthree\n"},
    )
    assert [(w.pre, w.post) for w in (world(made, n) for n in (1, 2, 3))] == [
        (ABSENT, "one\n"),
        ("one\n", "two\n"),
        ("two\n", "two\nthree\n"),
    ]
    assert world(made, 3).command == "echo three >> a"
    assert world(made, 1).command is ABSENT
    assert made.unproven == ()
    assert made.unattributed == ()


def test_a_baseline_file_is_the_side_before() -> None:
    made = replayed([edit("a", "x", "y")], {"a": "x"}, {"a": b"y"})
    assert (world(made, 1).pre, world(made, 1).post) == ("x", "y")


def test_a_baseline_that_nobody_has_is_unproven_and_no_creation() -> None:
    history = read_history([stream([write("a", "y")])], [])
    made = replay(
        history,
        Tree({"a": digest_of(b"x")}, lambda _: None),
        Ended({"a": digest_of(b"y")}, frozenset(), True, frozenset(), lambda _: b"y"),
        Places(("/workspace",)),
    )
    assert world(made, 1).pre is UNPROVEN
    assert world(made, 1).post == "y"


def test_a_file_whose_replay_disagrees_is_unproven_in_every_world() -> None:
    calls = [write("a", "one"), shell("python3 change.py"), edit("a", "one", "two")]
    made = replayed(calls, {}, {"a": b"something else"})
    assert made.unproven == ("a",)
    for number in (1, 3):
        assert (world(made, number).pre, world(made, number).post) == (UNPROVEN, UNPROVEN)


@pytest.mark.parametrize(
    "calls",
    [
        [write("a", "one"), shell("sed -i s/o/0/ a")],
        [write("a", "one"), shell("echo x >> a && false", ok=False)],
        [shell("if true; then echo a > a; fi")],
    ],
)
def test_a_write_that_is_seen_and_not_computed_leaves_the_file_unproven(calls: list[Call]) -> None:
    made = replayed(calls, {}, {"a": b"one"})
    assert made.unproven == ("a",)


def test_a_call_that_failed_is_judged_and_changes_nothing() -> None:
    made = replayed([write("a", "one", ok=False), write("a", "two")], {}, {"a": b"two"})
    assert (world(made, 1).pre, world(made, 1).post) == (ABSENT, "one")
    assert (world(made, 2).pre, world(made, 2).post) == (ABSENT, "two")
    assert made.unproven == ()


def test_an_edit_that_cannot_be_computed_proves_no_text() -> None:
    made = replayed([edit("a", "zz", "y", ok=False)], {"a": "x"})
    assert (world(made, 1).pre, world(made, 1).post) == ("x", UNPROVEN)


def test_a_change_that_no_call_is_seen_to_make_is_unattributed() -> None:
    made = replayed([shell("python3 write.py")], {}, {"b": b"text"})
    (found,) = made.unattributed
    assert (found.path, found.pre, found.post) == ("b", ABSENT, "text")
    assert world(made, 1).path is ABSENT


def test_a_shell_that_moved_writes_nowhere_known() -> None:
    calls = [shell("cd sub"), shell("ls"), shell("echo x > a"), shell("echo y > /workspace/b")]
    made = replayed(calls, {}, {"b": b"y\n"})
    assert world(made, 3).path is ABSENT
    assert world(made, 4).path == "b"


def test_what_was_not_read_to_its_end_proves_no_replay() -> None:
    assert replayed([write("a", "x")], {"a": "x"}).unproven == ()
    assert replayed([write("a", "x")], {"a": "x"}, complete=False).unproven == ("a",)


def test_only_an_absent_or_false_error_is_success() -> None:
    for is_error, expected in ((b"false", True), (b"0", False), (b'""', False), (b"null", False)):
        raw = stream([shell("ls", ok=False)]).replace(
            b'"is_error": true', b'"is_error": ' + is_error
        )
        (call,) = read_history([raw], []).calls
        assert call.succeeded is expected, is_error


def test_a_path_outside_the_workspace_is_no_world() -> None:
    made = replayed(
        [Call("Write", {"file_path": "/tmp/a", "content": "x"}), shell("echo x > ../../etc/a")]
    )
    assert [o.number for o in made.observations] == [2]
    assert world(made, 2).subject == "-"


def test_the_actor_is_the_stream_s_and_not_the_call_s_own_word() -> None:
    given = {"command": "git commit", "subagent_type": "liar"}
    made = replayed([Call("Bash", given), Call("Bash", given, agent="writer")])
    assert world(made, 1).actor == {}
    assert world(made, 2).actor == {"agentType": "writer"}


def test_history_is_cut_strictly_before_the_call_and_its_results_too() -> None:
    made = replayed(
        [shell("a"), shell("b"), shell("c", same_message=True), shell("d", ok=None), shell("e")]
    )
    seen = [
        [(c["args"]["command"], c["succeeded"]) for c in world(made, n).transcript["toolCalls"]]
        for n in (1, 2, 3, 4, 5)
    ]
    assert seen == [
        [],
        [("a", True)],
        [("a", True), ("b", False)],
        [("a", True), ("b", True), ("c", True)],
        [("a", True), ("b", True), ("c", True), ("d", False)],
    ]
    snapshot = world(made, 2).transcript
    assert snapshot["observedAtMs"] == 1748779202000
    assert snapshot["userMessages"] == [
        {"index": 0, "text": "Do it.", "timestampMs": 1748779200000}
    ]


def test_the_subagents_of_a_real_stream(shared: Path) -> None:
    for name in ("05-subagent-background", "06-subagent-foreground"):
        raw = (shared / "captures" / "claude-code" / f"{name}.jsonl").read_bytes()
        history = read_history([raw], [])
        actors = [(call.tool, call.actor) for call in history.calls]
        assert actors == [("Agent", {}), ("Bash", {"agentType": "general-purpose"})]
        assert [spawn.record["agentType"] for spawn in history.spawns] == ["general-purpose"]
        assert all(call.succeeded for call in history.calls)
        made = replay(
            history,
            Tree({}, lambda _: None),
            Ended({}, frozenset(), True, frozenset(), lambda _: None),
            Places(("/workspace",)),
        )
        (observation,) = made.observations
        records = json.loads(observation.worlds[0].sidecar)
        assert records[0]["toolUseId"] == history.calls[0].id


def test_replay_of_random_sequences_is_the_file_on_disk(tmp_path: Path) -> None:
    """Every edit is made on the disk by other means than the replay's."""
    draw = random.Random(5)
    for run in range(40):
        place = tmp_path / str(run)
        place.mkdir()
        before = {"a": "alpha beta\n", "b": "one\ntwo\n"}
        for name, text in before.items():
            (place / name).write_text(text)
        calls: list[Call] = []
        for _ in range(draw.randint(1, 12)):
            name = draw.choice("abc")
            there = (place / name).read_text() if (place / name).exists() else None
            word = draw.choice(["alpha", "beta", "one", "two", "x", "\n", "$&", "한"])
            new = draw.choice(["gamma", "", "\\1", "one two", "é"])
            match draw.choice(["write", "edit", "multi", "shell", "here"]):
                case "write":
                    content = draw.choice(["alpha\n", "", "beta one", there or "x"])
                    (place / name).write_text(content)
                    calls.append(write(name, content))
                case "edit":
                    good = there is not None and there.count(word) == 1 and word != new
                    if good and there is not None:
                        head, tail = there.split(word)
                        (place / name).write_text(head + new + tail)
                    calls.append(edit(name, word, new, ok=good))
                case "multi":
                    path = f"/workspace/{name}"
                    edits = [{"old_string": word, "new_string": new, "replace_all": True}]
                    good = there is not None and word in there and word != new
                    if good and there is not None:
                        (place / name).write_text(new.join(there.split(word)))
                    calls.append(Call("MultiEdit", {"file_path": path, "edits": edits}, good))
                case "shell":
                    command = f"echo '{word}' {draw.choice(['>', '>>'])} {name}"
                    subprocess.run(["bash", "-c", command], cwd=place, check=True)
                    calls.append(shell(command))
                case _:
                    command = f"cat >> {name} <<'E'\n{new}\n$word\nE\n"
                    subprocess.run(["bash", "-c", command], cwd=place, check=True)
                    calls.append(shell(command))
        final = {path.name: path.read_bytes() for path in place.iterdir()}
        made = replayed(calls, before, final)
        assert made.unproven == ()
        assert made.unattributed == ()
        last: dict[str, Any] = {}
        for observation in made.observations:
            for each in observation.worlds:
                if each.path is not ABSENT and observation.call.succeeded:
                    last[each.path] = each.post
        assert last == {name: final[name].decode() for name in last}


# A batch -------------------------------------------------------------------------------------


@pytest.fixture
def batch(tmp_path: Path) -> Made:
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("x")
    made = Made(tmp_path / "out", tree)
    made.begin()
    return made


def judged(made: Made, *entries: dict[str, Any], tree: bool = True) -> BatchVerdicts:
    disciplines = load_disciplines(rules(*entries), "rules.json")
    return judge_batch(made.out, disciplines, [made.tree] if tree else [])


def events(found: BatchVerdicts) -> list[tuple[str, str, int | None]]:
    return [
        (verdict.event, verdict.subject, verdict.call)
        for session in found.sessions
        for verdict in session.verdicts
    ]


def test_a_row_for_each_verdict_under_its_session(batch: Made) -> None:
    batch.session([write("b", "hit"), shell("ls")], {"b": b"hit"})
    found = judged(batch, entry("no-b", SOURCE_POST, enforce="block", why="because\nso"))
    (line,) = log_of(found).splitlines()
    assert line.split("\t") == [
        "2025-06-01T12:00:01.000Z",
        "blocked",
        "no-b",
        "L1-campaign-present-p1-r1:b",
        '[{"id":"r","witnesses":[{"key":"0","value":"hit"}],"total":1}]',
    ]
    (verdict,) = found.sessions[0].verdicts
    assert verdict.message == "discipline 'no-b' broken on b: 0:hit — why: because so"
    assert found.sessions[0].first_break == verdict


def test_without_the_baseline_s_text_nothing_that_reads_it_is_judged(batch: Made) -> None:
    batch.session([edit("a", "x", "y")], {"a": b"y"})
    rule = entry("pre", {"it": [{"op": "source", "of": "pre"}]})
    assert events(judged(batch, rule)) == [("advised", "a", 1)]
    unknown = judged(batch, rule, tree=False)
    assert events(unknown) == [("skipped", "a", 1)]
    assert unknown.sessions[0].verdicts[0].skip == "no-observation"


def test_a_text_that_the_batch_keeps_needs_no_tree_and_is_held_to_its_digest(batch: Made) -> None:
    batch.session([edit("a", "x", "y")], {"a": b"y"})
    rule = entry("pre", {"it": [{"op": "source", "of": "pre"}]})
    kept = batch.out / "arms" / "before" / digest_of(b"x").removeprefix("sha256:")
    kept.parent.mkdir()
    kept.write_bytes(b"x")
    assert events(judged(batch, rule, tree=False)) == [("advised", "a", 1)]
    kept.write_bytes(b"z")
    assert events(judged(batch, rule, tree=False)) == [("skipped", "a", 1)]


def test_a_tree_that_moved_since_is_no_baseline(batch: Made) -> None:
    batch.session([write("a", "y")], {"a": b"y"})
    (batch.tree / "a").write_text("moved")
    rule = entry("pre", {"it": [{"op": "source", "of": "pre"}]})
    assert events(judged(batch, rule)) == [("skipped", "a", 1)]


def test_what_reads_the_change_set_is_judged_once_over_the_session(batch: Made) -> None:
    batch.session([write("b", "1"), shell("rm a")], {"b": b"1", "a": None})
    found = judged(
        batch, entry("set", {"it": [{"op": "source", "of": "changes"}, {"op": "items"}]})
    )
    assert events(found) == [("advised", "a", None)]
    assert found.sessions[0].verdicts[0].broke[0].total == 2


def test_a_workspace_that_was_not_read_to_its_end_has_no_change_set(batch: Made) -> None:
    batch.session([write("b", "1")], {"b": b"1"}, removed=None)
    found = judged(
        batch, entry("set", {"it": [{"op": "source", "of": "changes"}, {"op": "items"}]})
    )
    assert [verdict.skip for verdict in found.sessions[0].verdicts] == ["no-observation"]


def test_a_change_without_its_call_is_a_row_of_its_own(batch: Made) -> None:
    batch.session([shell("python3 w.py")], {"b": b"hit"})
    found = judged(batch, entry("no-b", SOURCE_POST))
    assert events(found) == [("unattributed", "b", None)]
    assert found.sessions[0].unattributed == ("b",)


def test_a_file_that_is_bound_is_read_as_it_is_at_that_call(batch: Made) -> None:
    batch.session([write("c", "1"), edit("a", "x", "y"), write("c", "2")], {"a": b"y", "c": b"2"})
    rule = entry(
        "bound",
        {"it": [{"op": "source", "of": "a"}, {"op": "matches", "re": "y"}]},
        sources={"a": {"file": "a"}},
    )
    assert events(judged(batch, rule)) == [
        ("passed", "c", 1),
        ("advised", "a", 2),
        ("advised", "c", 3),
    ]


def test_a_refused_session_is_named_and_not_judged(batch: Made) -> None:
    batch.session([write("b", "1")], {"b": b"1"}, refusal=14)
    batch.session([write("b", "1")], {"b": b"1"})
    found = judged(batch, entry("no-b", SOURCE_POST))
    assert [s.not_judged for s in found.sessions] == ["it was refused with 14", None]
    (rate,) = rates_by_arm(found)
    assert (rate.broken, rate.judged, rate.not_judged) == (1, 1, 1)


def test_rates_keep_apart_what_was_not_judged(batch: Made) -> None:
    batch.session([write("b", "1")], {"b": b"1"})
    batch.session([write("b", "")], {"b": b""})
    batch.session([shell("ls")], {})
    batch.session([shell("python3 w.py")], {"b": b"hit"})
    batch.session([write("b", "ok"), shell("sed -i s/o/1/ b")], {"b": b"1k"})
    lines = {"it": [{"op": "source", "of": "post"}, {"op": "lines"}, {"op": "matches", "re": "1"}]}
    found = judged(batch, entry("no-1", lines))
    (rate,) = rates_by_arm(found)
    assert (rate.tier, rate.arm) == ("campaign", "present")
    assert (rate.broken, rate.judged, rate.skipped, rate.untouched) == (1, 2, 2, 1)
    assert rate.rate == 0.5
    assert rate.low == pytest.approx(0.0945, abs=1e-3)
    assert rate.high == pytest.approx(0.9055, abs=1e-3)
    (first,) = first_breaks(found)
    assert (first.session, first.call) == ("L1-campaign-present-p1-r1", 1)


def test_a_session_of_no_batch_has_no_baseline(batch: Made, tmp_path: Path) -> None:
    session = batch.session([write("b", "1")], {"b": b"1"})
    alone = tmp_path / "alone"
    session.rename(alone)
    disciplines = load_disciplines(rules(entry("x", SOURCE_POST)), "rules.json")
    with pytest.raises(Refusal, match="no manifest of its arm"):
        judge_batch(alone, disciplines)
    with pytest.raises(Refusal, match="holds no session that ended"):
        judge_batch(tmp_path / "tree", disciplines)


def test_a_bound_file_that_the_same_call_writes_is_read_as_the_call_leaves_it(batch: Made) -> None:
    batch.session([shell("echo y > a; echo 1 > c")], {"a": b"y\n", "c": b"1\n"})
    rule = entry(
        "bound",
        {"it": [{"op": "source", "of": "a"}, {"op": "matches", "re": "y"}]},
        sources={"a": {"file": "a"}},
    )
    rule["declare"]["scope"]["include"] = ["^c$"]
    assert events(judged(batch, rule)) == [("advised", "c", 1)]
