"""The egress log: a chain in which a change, a hole and a cut tail show; unwritable means shut."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.bounds import Used
from proxy.egress import EgressError, EgressLog, read, safe

DECISION: dict[str, Any] = {
    "connection": 1,
    "request": None,
    "layer": "connect",
    "asked": {"host": "evil.test", "port": 443},
    "decision": "refused",
    "rule": "connect-host",
    "detail": "",
    "status": 403,
}


BOUNDS = dict.fromkeys(("requests", "bytes", "input_tokens", "output_tokens", "dollars"))
USED = {"used": Used().members(priced=False)}


def written(path: Path, decisions: int = 3) -> list[bytes]:
    log = EgressLog(path, "s1")
    opening = {"policy": "sha256:" + "1" * 64, "mitmproxy": "12", "bounds": BOUNDS}
    log.append("open", opening, durable=True)
    for _ in range(decisions):
        log.append("decision", DECISION, durable=True)
    log.close(USED)
    return path.read_bytes().splitlines(keepends=True)


def test_a_whole_log_reads_without_fault_and_counts(tmp_path: Path) -> None:
    reading = read(written(tmp_path / "egress.jsonl"))
    assert reading.faults == ()
    assert (reading.allowed, reading.refused) == (0, 3)
    assert [line["sequence"] for line in reading.lines] == [1, 2, 3, 4, 5]


def test_every_line_is_of_the_published_schema(tmp_path: Path, project: Path) -> None:
    schema = json.loads((project / "proxy" / "egress.schema.json").read_text())
    validator = jsonschema.Draft202012Validator(schema)
    validator.check_schema(schema)
    for line in written(tmp_path / "egress.jsonl"):
        validator.validate(json.loads(line))
    with pytest.raises(jsonschema.ValidationError):
        validator.validate({**json.loads(line), "body": "prose"})


def test_every_change_of_a_log_shows(tmp_path: Path) -> None:
    lines = written(tmp_path / "egress.jsonl")
    changes = {
        "line taken out": [*lines[:2], *lines[3:]],
        "line twice": [*lines[:3], lines[2], *lines[3:]],
        "lines swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        "tail cut": lines[:-1],
        "last line cut": [*lines[:-1], lines[-1][:-5]],
        "no newline at the end": [*lines[:-1], lines[-1].rstrip(b"\n")],
        "line edited": [lines[0], lines[1].replace(b"evil", b"good"), *lines[2:]],
        "outcome edited": [lines[0], lines[1].replace(b"refused", b"allowed"), *lines[2:]],
        "session edited": [lines[0], lines[1].replace(b'"s1"', b'"s2"'), *lines[2:]],
        "line added": [*lines, lines[-1]],
        "garbage": [*lines[:2], b"garbage\n", *lines[3:]],
        "nothing": [],
    }
    for what, changed in changes.items():
        assert read(changed).faults, what


@given(data=st.data())
def test_any_changed_byte_shows(data: st.DataObject, tmp_path_factory: Any) -> None:
    lines = written(tmp_path_factory.mktemp("log") / "egress.jsonl", 1)
    joined = b"".join(lines)
    at = data.draw(st.integers(0, len(joined) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != joined[at]))
    changed = joined[:at] + bytes([byte]) + joined[at + 1 :]
    last = len(joined) - len(lines[-1])
    if at < last:
        assert read(changed.splitlines(keepends=True)).faults


def test_one_log_is_one_sidecars(tmp_path: Path) -> None:
    written(tmp_path / "egress.jsonl")
    with pytest.raises(EgressError):
        EgressLog(tmp_path / "egress.jsonl", "s1")


def test_a_log_that_cannot_be_written_stays_shut(tmp_path: Path) -> None:
    log = EgressLog(tmp_path / "egress.jsonl", "s1")
    full = os.open("/dev/full", os.O_WRONLY)
    kept, log._descriptor = log._descriptor, full
    with pytest.raises(EgressError, match="cannot be written"):
        log.append("decision", DECISION, durable=True)
    # Room again, but a log with a hole is not a log.
    log._descriptor = kept
    with pytest.raises(EgressError, match="closed"):
        log.append("decision", DECISION, durable=True)
    log.close(USED)
    os.close(full)
    assert read((tmp_path / "egress.jsonl").read_bytes().splitlines(keepends=True)).faults


def test_a_log_is_not_written_after_its_end(tmp_path: Path) -> None:
    log = EgressLog(tmp_path / "egress.jsonl", "s1")
    log.close(USED)
    log.close(USED)
    with pytest.raises(EgressError):
        log.append("decision", DECISION, durable=True)


@given(st.text())
def test_a_value_is_written_in_safe_characters_and_unambiguously(value: str) -> None:
    text = safe(value)
    assert text.isascii()
    assert text.isprintable()
    assert "\\" not in text
    assert '"' not in text
    assert safe(value + "%") != text


def test_a_long_value_is_cut_and_says_so() -> None:
    assert safe("a" * 5000) == "a" * 200 + "[cut 5000]"
    assert safe("/v1/x%00\n") == "/v1/x%2500%0A"


def test_a_full_log_takes_its_closing_line_alone_and_says_what_it_lacks(
    tmp_path: Path, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "egress.jsonl"
    monkeypatch.setattr("proxy.egress.LONGEST_LOG", 1000)
    log = EgressLog(path, "s1")
    opening = {"policy": "sha256:" + "1" * 64, "mitmproxy": "12", "bounds": BOUNDS}
    log.append("open", opening, durable=True)
    while not log.full:
        log.append("decision", DECISION, durable=True)
    assert log.size == path.stat().st_size
    with pytest.raises(EgressError):
        log.append("decision", DECISION, durable=True)
    log.pass_over()
    log.close(USED)
    lines = path.read_bytes().splitlines(keepends=True)
    reading = read(lines)
    assert reading.lines[-1]["kind"] == "close"
    assert reading.lines[-1]["unwritten"] == 2
    assert reading.faults == ("the log was full, and what came after is not in it",)
    schema = json.loads((project / "proxy" / "egress.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(lines[-1]))
