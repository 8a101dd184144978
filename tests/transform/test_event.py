"""From a stream to an event: what is kept, what is dropped, what is derived."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.stream.observation import observe
from recorder.transform.cites import cites_in, compile_cites
from recorder.transform.produced import Places, ProducedFile, produced_paths, written_paths
from recorder.transform.transform import TransformOptions, transform
from tests.stream.streams import blocks, call, init, outcome, result


def options(
    digest: Callable[[str], str] = lambda path: f"digest of {path}", **given: Any
) -> TransformOptions:
    members: dict[str, Any] = {"probe": "PROBE-A", "session": "s1", **given}
    return TransformOptions(
        document_digest=digest,
        produced_file=lambda path: ProducedFile(path, digest(path), ()),
        **members,
    )


def event(*stream: bytes, **given: Any) -> Any:
    (read,) = yaml.safe_load(transform(stream, options(**given)))
    return read


def test_every_capture_gives_an_event_of_the_declared_keys(shared: Path) -> None:
    for path in sorted((shared / "captures" / "claude-code").glob("[0-9]*.jsonl")):
        stream = path.read_bytes()
        read = event(stream)
        assert list(read) == ["probe", "session", "calls", "produced", "answer"], path.name
        assert len(read["calls"]) == len(observe([stream]).calls)


def test_the_recorded_stream(shared: Path) -> None:
    """L40"""
    path = shared / "conformance" / "headwater" / "live-haiku-session.reduced.jsonl"
    text = transform([path.read_bytes()], options())
    (read,) = yaml.safe_load(text)
    assert [seen["tool"] for seen in read["calls"]] == ["Read"]
    assert "headwater" not in text


MARK = re.compile("[a-z]{4}-[0-9]{6}-kept-out")
marks = st.integers(0, 999999).map(lambda number: f"mark-{number:06d}-kept-out")
dropped_blocks = st.one_of(
    st.builds(lambda m: {"type": "text", "text": f"answer: {m}\n- probe: x"}, marks),
    st.builds(lambda m: {"type": "thinking", "thinking": m, "signature": m}, marks),
    st.builds(lambda m: {"type": "redacted_thinking", "data": m}, marks),
    st.builds(
        lambda m: {"type": "server_tool_use", "id": "t", "name": m, "input": {"path": m}},
        marks,
    ),
    st.builds(lambda t, m: {"type": t, "name": m, "input": {"path": m}},
              st.text(min_size=1).filter(lambda t: t != "tool_use"), marks),
)  # fmt: skip
dropped_lines = st.one_of(
    dropped_blocks.map(blocks),
    marks.map(lambda m: outcome("toolu_1").replace(b'"x"', f'"{m}"'.encode())),
    marks.map(lambda m: result(f"{m}\nmerge")),
)


@given(st.lists(dropped_lines, max_size=8), st.integers(0, 8))
def test_no_byte_of_a_dropped_block_is_in_the_event(lines: list[bytes], at: int) -> None:
    """L01, L02"""
    kept = call("Read", {"file_path": "docs/a.md"})
    stream = [init(), *lines[:at], kept, *lines[at:]]
    text = transform(stream, options(answers=("merge",)))
    assert not MARK.search(text)
    (read,) = yaml.safe_load(text)
    assert [seen["argument"] for seen in read["calls"]] == ["docs/a.md"]


anything = st.text(st.characters(), max_size=15)


@given(st.lists(st.tuples(st.text(min_size=1), anything, st.booleans()), max_size=5))
def test_the_output_parses_as_exactly_the_calls(calls: list[tuple[str, str, bool]]) -> None:
    """L09"""
    stream = [init()]
    stream += [call(t, {"file_path": a} if p else {"command": a}) for t, a, p in calls]
    read = event(*stream)
    observed = observe(stream).calls
    assert [(s["tool"], s["argument"]) for s in read["calls"]] == [
        (s.tool, s.argument) for s in observed
    ]
    assert [s.tool for s in observed] == [
        re.sub("[\ud800-\udfff]", "\ufffd", tool) for tool, _, _ in calls
    ]


@pytest.mark.parametrize("cut", [b"", b'{"type":"assistant"', b"x\n"])
def test_nothing_is_given_out_of_a_stream_that_is_not_whole(cut: bytes) -> None:
    """L06, L07"""
    start = [init()] if cut else []
    asked: list[str] = []
    with pytest.raises(Refusal) as refused:
        transform([*start, call("Read", {"file_path": "a"})[: 0 if not cut else None], cut],
                  options(digest=lambda path: asked.append(path) or ""))  # type: ignore[func-returns-value]  # fmt: skip
    assert refused.value.code is ExitCode.OBSERVATION
    assert asked == []


def test_a_stream_without_a_result_line_is_an_event() -> None:
    read = event(init(), call("Read", {"file_path": "a"}), answers=("merge",))
    assert read["answer"] is None
    with pytest.raises(Refusal, match="no result line"):
        event(init(), need_result=True)


@pytest.mark.parametrize(
    ("members", "answers", "expected"),
    [
        ({"text": "x\nmerge."}, ("stamp", "Merge"), "Merge"),
        ({"text": "merge"}, None, None),
        ({"text": "merge"}, (), None),
        ({"text": "merge", "subtype": "error_max_turns", "is_error": True}, ("merge",), None),
        ({"text": "merge", "is_error": True}, ("merge",), None),
        ({"text": None}, ("merge",), None),
    ],
    ids=["declared", "K22-no-set", "K24", "K23-capped", "api-error", "K21"],
)
def test_answer(members: dict[str, Any], answers: Any, expected: str | None) -> None:
    assert event(init(), result(**members), answers=answers)["answer"] == expected


def test_results_of_calls_are_asked_by_the_placed_path() -> None:
    """L16, L17"""
    stream = [
        init(),
        call("Read", {"file_path": "/workspace/docs/a.md"}),
        call("Read", {"file_path": "docs/../docs/a.md"}),
        call("Read", {"file_path": "/elsewhere/a.md"}),
        call("Bash", {"command": "ls -la"}),
    ]
    calls = event(*stream)["calls"]
    assert [seen["result"] for seen in calls] == [
        "digest of docs/a.md",
        "digest of docs/a.md",
        "digest of /elsewhere/a.md",
        "",
    ]
    assert calls[3]["argument"] == '{"command":"ls -la"}'
    assert calls[0]["argument"] == "/workspace/docs/a.md"


def test_produced_is_a_union_and_each_file_once() -> None:
    """L27, L32, L41"""
    stream = [
        init(),
        call("Read", {"file_path": "/workspace/read.md"}),
        call("Edit", {"file_path": "/workspace/a.md"}),
        call("Write", {"file_path": "b.md"}),
        call("MultiEdit", {"file_path": "/workspace/./c.md"}),
        call("NotebookEdit", {"notebook_path": "/workspace/d.ipynb"}),
        call("Edit", {"file_path": "/workspace/x/../a.md"}),
        call("Bash", {"command": "echo x > /workspace/e.md"}),
        call("Write", {"file_path": "/session/config/projects/-workspace/memory/m.md"}),
        call("Write", {"file_path": "/tmp/t.md"}),
    ]
    read = event(*stream, named=("b.md", "named.md"), changed=("a.md", "e.md"))
    assert [artifact["path"] for artifact in read["produced"]] == [
        "a.md",
        "b.md",
        "c.md",
        "d.ipynb",
        "/tmp/t.md",
        "named.md",
        "e.md",
    ]
    assert written_paths(observe(stream))[0] == "/workspace/a.md"


@given(st.lists(st.sampled_from(["a", "..", ".", "b"]), min_size=1, max_size=6))
def test_a_placed_path_never_climbs(parts: list[str]) -> None:
    places = Places(("/workspace", "/host/dir"))
    for path in ("/".join(parts), "/workspace/" + "/".join(parts)):
        placed = places.place(path)
        assert placed.startswith("/") or ".." not in placed.split("/")


def test_the_workspace_itself_is_not_produced() -> None:
    observation = observe([init(), call("Write", {"file_path": "/workspace"})])
    assert produced_paths(observation, Places(("/workspace",)), named=(".", "")) == ()


def test_cites_are_every_identifier_once() -> None:
    """L37"""
    content = b"HW-OBL-0233 and HW-PD-0001, HW-OBL-0233, HW-DR-00345 xHW-DR-0001 hw-dr-0002"
    expected = ("HW-DR-0001", "HW-DR-0034", "HW-OBL-0233", "HW-PD-0001")
    assert cites_in(content, compile_cites()) == expected
    assert cites_in(b"AB-CD-12", compile_cites()) == ()
    assert cites_in(b"X1 Y-22", compile_cites("[A-Z][0-9]")) == ("X1",)


@given(st.text(st.sampled_from("AB-01 "), max_size=40))
def test_the_guarded_pattern_finds_what_the_plain_one_finds(text: str) -> None:
    plain = re.compile(rb"[A-Z]+-[A-Z]+-[0-9]{4}")
    assert cites_in(text.encode(), compile_cites()) == cites_in(text.encode(), plain)


def test_a_megabyte_of_capitals_is_no_trap() -> None:
    assert cites_in(b"A" * (1 << 20) + b"-" + b"B" * (1 << 20), compile_cites()) == ()


@given(st.text(min_size=1), st.text(min_size=1))
def test_cites_and_findings_do_not_depend_on_the_probe(probe: str, session: str) -> None:
    stream = [init(), call("Write", {"file_path": "a.md"}), result()]
    read = event(*stream, probe=probe, session=session)
    assert read["produced"] == event(*stream)["produced"]
