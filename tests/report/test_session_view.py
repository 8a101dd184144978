"""What a session's files say, as the view of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from proxy.egress import EgressLog
from recorder.report.difference import difference
from recorder.report.limits import Limits
from recorder.report.session_view import SessionFiles, Shared, Slot, session_view
from recorder.report.view import SessionView
from recorder.transcript.contract import Artifact, Call
from tests.report import made

DIGEST = "sha256:" + "a" * 64
RAW = made.lines(
    made.assistant(1.0, 1, "Read", {"file_path": "/workspace/a.md"}),
    made.told(1.5, 1),
    made.assistant(2.0, 2, "Bash", {"command": "false"}),
    made.told(2.25, 2, failed=True),
)
CALLS = (
    Call(tool="Read", argument="/workspace/a.md", result=DIGEST),
    Call(tool="Bash", argument='{"command":"false"}', result=""),
)


def view(files: SessionFiles, limits: Limits | None = None, name: str = "one") -> SessionView:
    return session_view(files, Slot(name), Shared(), limits or Limits(), examined={DIGEST})


def egress(directory: Path, session: str = "one") -> bytes:
    path = directory / "egress.jsonl"
    log = EgressLog(path, session, clock=lambda: made.stamp(1.25))
    log.append("open", {"policy": DIGEST, "mitmproxy": "12"}, durable=False)
    asked = {"host": "mirror.test", "port": 443, "method": "CONNECT"}
    refused = {"request": None, "asked": asked, "decision": "refused", "rule": "connect-host"}
    log.append("decision", {**refused, "detail": "", "status": 403}, durable=False)
    log.close({})
    return path.read_bytes()


def test_calls_have_their_times_results_and_failures(tmp_path: Path) -> None:
    found = view(
        made.files(
            evidence=made.evidence(),
            record=made.record(calls=CALLS),
            raw=RAW,
            egress=egress(tmp_path),
        )
    )
    assert found.outcome == "recorded"
    assert found.faults == ()
    assert [(call.at, call.end, call.tool, call.result, call.failed) for call in found.calls] == [
        (1.0, 1.5, "Read", DIGEST, False),
        (2.0, 2.25, "Bash", "", True),
    ]
    assert [(r.at, r.host, r.outcome, r.status) for r in found.requests] == [
        (1.25, "mirror.test:443", "connect-host", 403)
    ]
    assert found.opened is True
    assert found.seconds == 3.5


def test_no_word_of_a_model_or_a_document_is_in_a_view(tmp_path: Path) -> None:
    files = made.files(evidence=made.evidence(), record=made.record(calls=CALLS), raw=RAW)
    assert "words of a" not in repr(view(files))


def test_no_text_of_a_session_can_hide_or_reorder_in_a_view(tmp_path: Path) -> None:
    hidden = "\u202eevil\u200b\x1b[31m"
    raw = made.lines(
        made.assistant(1.0, 1, hidden, {"file_path": hidden}),
        made.told(1.5, 1),
    )
    artifact = Artifact(
        path=hidden, result="sha256:" + "1" * 64, cites=(hidden,), findings=(hidden,)
    )
    refusal = {"code": 14, "reasons": [hidden]}
    workspace = {"added": [hidden], "removed": [hidden], "left": [{"path": hidden, "why": hidden}]}
    for changes in ({}, {"refusal": refusal}):
        shared = Shared()
        found = session_view(
            made.files(
                evidence=made.evidence(
                    probe=hidden,
                    tier=hidden,
                    arm=hidden,
                    argv=[hidden],
                    workspace=workspace,
                    **changes,
                ),
                record=made.record(answer=hidden, produced=[artifact]),
                raw=raw,
                kept=lambda _: hidden.encode(),
            ),
            Slot(hidden, probe=hidden),
            shared,
            Limits(),
        )
        said = json.dumps([msgspec.to_builtins(found), shared.texts, shared.commands])
        assert not re.search(r"(?<!\\)\\u(202e|200b|001b)", said)
        assert said.count("evil") > 8


def test_a_call_that_disagrees_says_how() -> None:
    finding = "line 3, request 2: only in the stream: a tool_use of message msg_2"
    files = made.files(
        evidence=made.evidence(
            corroboration={"findings": [finding], "blocks": 2, "corroborated": 1},
            refusal={"code": 14, "reasons": ["the witnesses disagree"]},
        ),
        raw=RAW,
    )
    found = view(files)
    assert (found.outcome, found.code, found.reasons) == (
        "refused",
        14,
        ("the witnesses disagree",),
    )
    assert [call.mark for call in found.calls] == ["not joined", "disagrees"]
    assert found.calls[1].finding == finding


def test_the_statements_of_a_record_are_its_paragraphs_and_shared() -> None:
    shared = Shared()
    files = made.files(evidence=made.evidence(), record=made.record())
    first, second = (session_view(files, Slot("one"), shared, Limits()) for _ in range(2))
    assert first.statements == second.statements == (0, 1)
    assert shared.texts == ["**The channel.** Said of `it`.", "A second paragraph."]


@pytest.mark.parametrize(
    ("changes", "outcome"),
    [
        ({"started": False}, "not run"),
        ({}, "unfinished"),
        ({"evidence": b"{"}, "unreadable"),
        ({"evidence": made.evidence()}, "unreadable"),
        ({"evidence": made.evidence(), "record": b"\xff"}, "unreadable"),
        ({"evidence": made.evidence(), "record": b"no record"}, "unreadable"),
        ({"evidence": made.evidence(capped=True), "record": made.record()}, "capped"),
    ],
)
def test_every_state_of_a_directory_has_a_view(changes: dict[str, bytes], outcome: str) -> None:
    found = view(made.files(**changes))
    assert found.outcome == outcome
    assert (outcome == "unreadable") <= bool(found.faults)


@pytest.mark.parametrize("raw", [b"", b"\n", b"{", b"[]\n", b"\xff\n", b'{"type":"assistant"}\n'])
def test_a_stream_of_any_bytes_has_a_view(raw: bytes) -> None:
    assert view(made.files(raw=raw)).outcome == "unfinished"


def test_files_of_another_session_are_a_fault(tmp_path: Path) -> None:
    files = made.files(evidence=made.evidence("two"), record=made.record("two"))
    faults = view(files).faults
    assert "evidence.json: is of session two and not of one" in faults
    assert "record.md: is of session two and not of one" in faults
    again = made.files(evidence=made.evidence(), record=made.record(), egress=egress(tmp_path))
    assert view(again, name="one.attempt-1").faults == ()


def test_a_cut_log_is_a_fault_and_its_lines_are_shown(tmp_path: Path) -> None:
    whole = egress(tmp_path)
    cut = whole[: whole.rindex(b'{"schema"')]
    found = view(made.files(evidence=made.evidence(), record=made.record(), egress=cut))
    assert "egress.jsonl, no closing line: the log was cut" in found.faults
    assert len(found.requests) == 1


def test_a_produced_file_is_shown_as_far_as_it_is_kept() -> None:
    kept = {"sha256:" + "1" * 64: b"one\ntwo\n", "sha256:" + "2" * 64: b"\x00\x01"}
    produced = [
        Artifact(path="new.md", result="sha256:" + "1" * 64, cites=("D-1",)),
        Artifact(path="old.md", result="sha256:" + "1" * 64, cites=()),
        Artifact(path="bytes", result="sha256:" + "2" * 64, cites=()),
        Artifact(path="gone", result="sha256:" + "3" * 64, cites=()),
    ]
    evidence = made.evidence(workspace={"added": ["new.md", "bytes"], "changed": ["old.md"]})
    found = view(
        made.files(evidence=evidence, record=made.record(produced=produced), kept=kept.get)
    )
    assert found.files is not None
    shown = [(file.kind, file.diff, bool(file.why)) for file in found.files]
    assert shown == [
        ("added", ("+one", "+two"), False),
        ("changed", (" one", " two"), True),
        ("added", None, True),
        ("named", None, True),
    ]


def test_what_was_not_watched_is_not_nothing() -> None:
    assert view(made.files(evidence=made.evidence(workspace=None))).files is None
    assert view(made.files(evidence=made.evidence(), record=made.record())).files == ()


def test_a_difference_shows_what_changed() -> None:
    found = difference(b"one\ntwo\nthree\n", b"one\n2\nthree\n", 100, is_new=False)
    assert found.lines == ("@@ -1,3 +1,3 @@", " one", "-two", "+2", " three")
    assert difference(b"a\nb\n", b"c\nd\n", 2, is_new=False).cut == 3


def test_a_long_argument_says_how_much_is_left_out() -> None:
    raw = made.lines(made.assistant(1.0, 1, "Bash", {"command": "x" * 100}))
    call = view(made.files(raw=raw), Limits(argument=10)).calls[0]
    assert (len(call.argument), call.cut) == (10, len(json.dumps({"command": "x" * 100})) - 11)
