"""The audit: what left is one derived line, and it is said only where every log verifies."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from typer.testing import CliRunner

from recorder.audit.attempts import Selection, attempts, rows
from recorder.audit.export import to_csv, to_har
from recorder.audit.logs import published_schema, read_logs
from recorder.audit.statement import statement
from recorder.cli.app import app
from recorder.refusal import ExitCode, Refusal
from tests.audit.sessions import (
    HOST,
    USUAL,
    allowed,
    answer,
    decision,
    write_batch,
    write_evidence,
    write_log,
)


def run(*words: object) -> tuple[int, str, tuple[str, ...]]:
    """A verb's exit code, standard output, and the reasons of its refusal."""
    result = CliRunner().invoke(app, ["audit", *map(str, words)])
    if isinstance(result.exception, Refusal):
        return result.exception.code, result.output, result.exception.reasons
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output, ()


def test_a_batch_says_in_one_line_what_left(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    assert statement(read_logs(tmp_path)) == (
        f"4 requests of 2 sessions reached {HOST}; 4 were refused; nothing else left."
    )


def test_one_session_and_one_request_are_told_in_the_singular(tmp_path: Path) -> None:
    write_log(tmp_path, "a", (("decision", allowed(1)), ("answer", answer(1)),
                              ("decision", decision())))  # fmt: skip
    write_evidence(tmp_path, "a")
    assert statement(read_logs(tmp_path)) == (
        f"1 request of 1 session reached {HOST}; 1 was refused; nothing else left."
    )


def test_what_was_let_out_and_not_answered_is_not_said_to_have_arrived(tmp_path: Path) -> None:
    silent = answer(2, status=None, end="failed", first_byte_ms=None)
    write_log(tmp_path, "a", (("decision", allowed(1)), ("answer", answer(1)),
                              ("decision", allowed(2)), ("answer", silent)))  # fmt: skip
    write_evidence(tmp_path, "a")
    assert statement(read_logs(tmp_path)) == (
        f"1 request of 1 session reached {HOST}; 1 more was let out and got no answer; "
        "0 were refused; nothing else left."
    )


def test_a_rehearsal_says_that_a_script_was_reached(tmp_path: Path) -> None:
    write_log(tmp_path, "a")
    write_evidence(tmp_path, "a", rehearsal=True)
    assert "a script in its place" in statement(read_logs(tmp_path))


def test_a_session_that_never_started_left_nothing_and_a_moved_attempt_counts(
    tmp_path: Path,
) -> None:
    write_batch(tmp_path, "a")
    (tmp_path / "sessions" / "b").mkdir()
    write_log(tmp_path / "sessions" / "c.attempt-1", "c")
    write_evidence(tmp_path / "sessions" / "c.attempt-1", "c")
    logs = read_logs(tmp_path)
    assert logs.unstarted == ("b",)
    assert statement(logs).startswith("4 requests of 2 sessions ")
    assert run("verify", tmp_path)[0] == 0


def edited(path: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))


def rechained(lines: list[bytes]) -> list[bytes]:
    """The same lines with a chain that holds: a forger can make one."""
    from proxy.egress import START, digest_of_line

    previous, made = START, []
    for line in lines:
        value = json.loads(line)
        value["previous"] = previous
        text = json.dumps(value, separators=(",", ":")).encode()
        previous = digest_of_line(text)
        made.append(text + b"\n")
    return made


def members_changed(**changes: Any) -> Callable[[list[bytes]], list[bytes]]:
    """A change of the third line, with a chain that holds again."""

    def change(lines: list[bytes]) -> list[bytes]:
        value = json.loads(lines[2]) | changes
        return rechained([*lines[:2], json.dumps(value).encode(), *lines[3:]])

    return change


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda lines: [*lines[:2], *lines[3:]], "line 3"),
        (lambda lines: lines[:-1], "no closing line"),
        (lambda lines: [lines[0].replace(b"open", b"opem"), *lines[1:]], "line 1"),
        (lambda lines: [*lines[:2], lines[2].replace(b"POST", b"GET "), *lines[3:]], "line 4"),
        (lambda lines: [*lines[:2], b"{}\n", *lines[3:]], "line 3"),
        (lambda _: [], "no closing line"),
        (members_changed(body="prose"), "line 3"),
        (members_changed(layer="elsewhere"), "line 3: layer"),
        (members_changed(bytes="90"), "line 3: bytes"),
        (members_changed(session="z"), "line 3: of another session"),
    ],
)
def test_a_log_that_does_not_verify_is_named_with_its_line_and_nothing_is_said_to_be_all(
    tmp_path: Path, change: Callable[[list[bytes]], list[bytes]], where: str
) -> None:
    write_batch(tmp_path, "a", "b")
    path = tmp_path / "sessions" / "b" / "egress.jsonl"
    edited(path, change)
    logs = read_logs(tmp_path)
    assert "nothing else left" not in statement(logs)
    assert statement(logs).startswith("What left cannot be said: 1 of 2 logs does not verify (")
    assert f"2 requests of 1 session reached {HOST}" in statement(logs)
    for verb in ("verify", "show"):
        code, _, reasons = run(verb, tmp_path)
        assert code == ExitCode.CORRUPT
        assert any(reason.startswith(f"{path}, {where}") for reason in reasons), reasons
    assert run("export", tmp_path, "--to", "csv")[0] == ExitCode.CORRUPT


def test_an_absent_log_is_named(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    path = tmp_path / "sessions" / "b" / "egress.jsonl"
    path.unlink()
    code, said, reasons = run("verify", tmp_path)
    assert code == ExitCode.CORRUPT
    assert [reason for reason in reasons if reason.startswith(f"{path}: is absent")]
    assert "nothing else left" not in said


def test_logs_swapped_between_sessions_show(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    one, other = (tmp_path / "sessions" / name / "egress.jsonl" for name in "ab")
    kept = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(kept)
    assert len(read_logs(tmp_path).faults) == 2


def test_without_evidence_of_the_one_way_out_a_whole_log_is_not_all_that_left(
    tmp_path: Path,
) -> None:
    write_batch(tmp_path, "a")
    write_evidence(tmp_path / "sessions" / "a", "a",
                   session_container={"HostConfig": {"NetworkMode": "bridge"}})  # fmt: skip
    logs = read_logs(tmp_path)
    assert logs.faults == ()
    assert statement(logs).startswith("What left cannot be said: ")
    assert "'bridge'" in statement(logs)
    (tmp_path / "sessions" / "a" / "evidence.json").unlink()
    assert "nothing else left" not in statement(read_logs(tmp_path))
    write_evidence(tmp_path / "sessions" / "a", "a", egress={"policy": "sha256:" + "9" * 64})
    assert "under another policy" in read_logs(tmp_path).faults[0]


def test_a_directory_that_is_neither_is_refused_as_usage(tmp_path: Path) -> None:
    code, _, reasons = run("verify", tmp_path)
    assert code == ExitCode.USAGE
    assert str(tmp_path) in reasons[0]


def test_rows_are_by_host_by_rule_and_by_session(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    tried = list(attempts(read_logs(tmp_path).sessions))
    by_host = {row.key: row for row in rows(tried, "host")}
    assert by_host[f"{HOST}:443", "allowed"].attempts == 4
    assert by_host[f"{HOST}:443", "allowed"].sent_bytes == 400
    assert by_host[f"{HOST}:443", "allowed"].first_byte_ms == 8.0
    assert by_host["mirror.test:443", "connect-host"].sessions == 2
    assert [row.key for row in rows(tried, "rule")] == [("allowed",), ("connect-host",), ("path",)]
    assert [row.key[0] for row in rows(tried, "session")] == ["a", "a", "a", "b", "b", "b"]


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        (Selection(), 8),
        (Selection(refused=True), 4),
        (Selection(hosts=("*.test",)), 2),
        (Selection(hosts=(f"{HOST}:443",)), 6),
        (Selection(rules=("path", "allowed")), 6),
        (Selection(sessions=("b",), refused=True), 2),
    ],
)
def test_filters_take_what_they_name(tmp_path: Path, selection: Selection, count: int) -> None:
    write_batch(tmp_path, "a", "b")
    assert sum(map(selection.takes, attempts(read_logs(tmp_path).sessions))) == count


def test_a_filter_for_what_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    write_batch(tmp_path, "a")
    assert run("show", tmp_path, "--rule", "connect-hsot")[0] == ExitCode.USAGE
    assert run("show", tmp_path, "--session", "z")[0] == ExitCode.USAGE


def test_a_person_reads_a_table_and_a_program_reads_the_same_as_json(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    code, said, _ = run("show", tmp_path, "--refused")
    assert code == 0
    assert re.search(r"mirror\.test:443 +connect-host +2 +2 ", said)
    assert said.rstrip().endswith("nothing else left.")
    code, text, _ = run("show", tmp_path, "--by", "each", "--session", "a", "--json")
    document = json.loads(text)
    assert [row["rule"] for row in document["rows"]] == ["connect-host", None, None, "path"]
    assert document["statement"].endswith("nothing else left.")
    assert json.loads(run("verify", tmp_path, "--json")[1])["sessions"][0]["lines"] == 8


def test_a_csv_has_a_row_an_attempt_and_no_formula(tmp_path: Path) -> None:
    target = {"host": HOST, "port": 443, "method": "GET", "path": "=cmd()"}
    write_log(tmp_path, "a", (*USUAL, ("decision", decision(asked=target, rule="path"))))
    read = list(csv.DictReader(io.StringIO(to_csv(attempts(read_logs(tmp_path).sessions)))))
    assert len(read) == 5
    assert (read[1]["status"], read[1]["output_tokens"], read[1]["sent_bytes"]) == (
        "200",
        "3",
        "100",
    )
    assert read[0]["status"] == "403"
    assert read[4]["path"] == "'=cmd()"


def _object(required: dict[str, Any], **optional: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "required": list(required),
        "properties": required | optional,
        "patternProperties": {"^_": {}},
        "additionalProperties": False,
    }


_TEXT, _NUMBER, _COUNT = {"type": "string"}, {"type": "number"}, {"type": "integer"}
_TIME = {
    "type": "string",
    "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)$",
}
_ELAPSED = {"type": "number", "minimum": 0}
_MAYBE = {"type": "number", "minimum": -1}
_PAIRS = {"type": "array", "items": _object({"name": _TEXT, "value": _TEXT}, comment=_TEXT)}
# The format's own description (HAR 1.2), as a schema: required members, kinds, nothing more.
HAR = _object({"log": _object(
    {
        "version": {"const": "1.2"},
        "creator": _object({"name": _TEXT, "version": _TEXT}, comment=_TEXT),
        "entries": {"type": "array", "items": _object(
            {
                "startedDateTime": _TIME,
                "time": _ELAPSED,
                "request": _object({
                    "method": _TEXT, "url": {"type": "string", "pattern": "^https?://[^ ]+$"},
                    "httpVersion": _TEXT, "cookies": {"type": "array"}, "headers": _PAIRS,
                    "queryString": _PAIRS, "headersSize": _COUNT, "bodySize": _COUNT,
                }, postData={"type": "object"}, comment=_TEXT),
                "response": _object({
                    "status": _COUNT, "statusText": _TEXT, "httpVersion": _TEXT,
                    "cookies": {"type": "array"}, "headers": _PAIRS,
                    "content": _object({"size": _COUNT, "mimeType": _TEXT}, compression=_COUNT,
                                       text=_TEXT, encoding=_TEXT, comment=_TEXT),
                    "redirectURL": _TEXT, "headersSize": _COUNT, "bodySize": _COUNT,
                }, comment=_TEXT),
                "cache": _object({}, beforeRequest={}, afterRequest={}, comment=_TEXT),
                "timings": _object({"send": _ELAPSED, "wait": _ELAPSED, "receive": _ELAPSED},
                                   blocked=_MAYBE, dns=_MAYBE, connect=_MAYBE, ssl=_MAYBE,
                                   comment=_TEXT),
            },
            pageref=_TEXT, serverIPAddress=_TEXT, connection=_TEXT, comment=_TEXT,
        )},
    },
    browser={"type": "object"},
    pages={"type": "array", "items": _object(
        {"startedDateTime": _TIME, "id": _TEXT, "title": _TEXT,
         "pageTimings": _object({}, onContentLoad=_NUMBER, onLoad=_NUMBER, comment=_TEXT)},
        comment=_TEXT)},
    comment=_TEXT,
)})  # fmt: skip


def test_a_har_is_one_and_holds_no_body(tmp_path: Path) -> None:
    write_batch(tmp_path, "a", "b")
    code, text, _ = run("export", tmp_path, "--to", "har")
    assert code == 0
    document = json.loads(text)
    jsonschema.Draft202012Validator(HAR).validate(document)
    entries = document["log"]["entries"]
    assert len(entries) == 8
    assert [entry["startedDateTime"] for entry in entries] == sorted(
        entry["startedDateTime"] for entry in entries
    )
    assert {entry["pageref"] for entry in entries} == {
        page["id"] for page in document["log"]["pages"]
    }
    for entry in entries:
        assert "text" not in entry["response"]["content"]
        assert "postData" not in entry["request"]
        spent = entry["timings"]
        assert entry["time"] == pytest.approx(spent["send"] + spent["wait"] + spent["receive"])
    left = next(entry for entry in entries if entry["response"]["status"] == 200)
    assert left["request"]["url"] == f"https://{HOST}/v1/messages?beta=true"
    assert left["request"]["queryString"] == [{"name": "beta", "value": "true"}]
    assert left["serverIPAddress"] == "192.0.2.1"


def test_a_har_keeps_what_is_no_request_of_http_as_an_entry(tmp_path: Path) -> None:
    closed = decision(asked={}, layer="connect", rule="nothing-asked", status=None)
    write_log(tmp_path, "a", (("decision", closed),))
    document = json.loads(to_har(list(attempts(read_logs(tmp_path).sessions))))
    jsonschema.Draft202012Validator(HAR).validate(document)
    assert document["log"]["entries"][0]["response"]["status"] == 0


def test_an_export_is_written_to_a_file(tmp_path: Path) -> None:
    write_batch(tmp_path / "batch", "a")
    out = tmp_path / "audit.csv"
    assert run("export", tmp_path / "batch", "--to", "csv", "--out", out)[0] == 0
    assert len(out.read_bytes().split(b"\r\n")) == 6


def test_the_published_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(published_schema())
