"""The ledger's lines, chain, writer and fold."""

from __future__ import annotations

import errno
import json
import os
import stat
import subprocess
import threading
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from msgspec import structs

from recorder.ledger.chain import digest_of, encode, ledger_schema, read
from recorder.ledger.entries import (
    START,
    Caps,
    Heartbeat,
    LedgerCut,
    Reported,
    SessionDecision,
)
from recorder.ledger.journal import open_journal, read_state
from recorder.ledger.schema import KINDS, made_schema
from recorder.ledger.state import OrderError, State, fold, fold_reading
from recorder.ledger.text_changes import COMPARED, line_counts
from recorder.refusal import Refusal
from tests.ledger.made import UNKNOWN, ended, every_kind, run_start, started, write


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write(tmp_path_factory.mktemp("ledger"), every_kind())


def faults_of(data: bytes) -> list[str]:
    _, faults = fold_reading(read(data))
    return [str(fault) for fault in faults]


def test_the_shipped_schema_is_the_one_that_the_structs_make() -> None:
    made = "make it with `python -m recorder.ledger.schema > recorder/ledger/ledger.schema.json`"
    assert ledger_schema() == made_schema(), made
    Draft202012Validator.check_schema(ledger_schema())


def test_every_kind_is_of_the_schema_and_each_of_its_members_is_needed(ledger: bytes) -> None:
    validator = Draft202012Validator(ledger_schema())
    lines = [json.loads(line) for line in ledger.splitlines()]
    kinds = {kind.__struct_config__.tag for kind in KINDS}
    assert {line["kind"] for line in lines} == kinds - {"ledger:cut"}
    for line in lines:
        assert list(validator.iter_errors(line)) == []
        for member in line:
            assert not validator.is_valid({k: v for k, v in line.items() if k != member}), member
        assert not validator.is_valid({**line, "more": 1})


@pytest.mark.parametrize("dollars", ["0.0000001", "1e22", "0", "12.50"])
def test_every_amount_that_can_be_written_is_of_the_schema(dollars: str, tmp_path: Path) -> None:
    caps = Caps(batch=Decimal(dollars), session=None, tiers={})
    line = json.loads(write(tmp_path, [structs.replace(run_start(), caps=caps)]))
    assert list(Draft202012Validator(ledger_schema()).iter_errors(line)) == []


def test_the_chain_is_checked_by_public_tools(ledger: bytes, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(ledger)
    script = """
    before=$(printf '0%.0s' {1..64})
    while IFS= read -r line; do
        [ "$(jq -r .previous <<<"$line")" = "sha256:$before" ] || echo "$(jq .sequence <<<"$line")"
        before=$(printf %s "$line" | sha256sum | cut -d' ' -f1)
    done < ledger.jsonl
    """
    said = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert said.stdout == ""


def test_what_was_written_is_read_and_folded(ledger: bytes) -> None:
    state, faults = fold_reading(read(ledger))
    assert faults == ()
    standings = {name: state.standing(name) for name in ("a", "b", "c", "d")}
    assert standings == {"a": "recorded", "b": "left-out", "c": "failed", "d": "missing"}
    totals = state.totals()
    assert (totals.recorded, totals.failed, totals.left_out, totals.remaining) == (1, 1, 1, 0)
    assert totals.usd == Decimal("0.60")
    assert (totals.reported_usd, totals.estimated_usd) == (Decimal("0.50"), Decimal("0.10"))
    assert (totals.unknown_calls, totals.unmeasured_calls) == (0, 1)
    assert (state.run, state.jobs) == (2, 3)


def test_every_bit_but_the_last_line_s_is_held_by_the_chain(ledger: bytes) -> None:
    """One bit of every byte flipped. The last line is held by what it says, and by a signature."""
    for position in range(ledger.rindex(b"\n", 0, -1) + 1):
        changed = bytearray(ledger)
        changed[position] ^= 1 << (position % 7)
        assert read(bytes(changed)).faults, position


@given(data=st.data())
def test_a_line_that_is_taken_out_moved_or_told_twice_is_found(
    ledger: bytes, data: st.DataObject
) -> None:
    lines = ledger.splitlines(keepends=True)
    one = data.draw(st.integers(0, len(lines) - 1))
    other = data.draw(st.integers(0, len(lines) - 1).filter(lambda number: number != one))
    match data.draw(st.sampled_from(("out", "swapped", "twice"))):
        case "out":
            if one == len(lines) - 1:
                return  # A whole line less at the end is a ledger that was shorter.
            changed = lines[:one] + lines[one + 1 :]
        case "swapped":
            changed = list(lines)
            changed[one], changed[other] = lines[other], lines[one]
        case _:
            changed = [*lines[:other], lines[one], *lines[other:]]
    assert faults_of(b"".join(changed))


def test_lines_that_are_gone_are_told_where_they_were_and_not_at_every_line_after(
    ledger: bytes,
) -> None:
    lines = ledger.splitlines(keepends=True)
    assert len(lines) > 6
    found = faults_of(b"".join([*lines[:2], *lines[3:5], *lines[6:]]))
    assert [each for each in found if "sequence" in each] == [
        "line 3: sequence is 4",
        "line 5: sequence is 7",
    ]


def test_corruption_in_the_middle_is_refused_with_its_line_and_rule(
    ledger: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(ledger.replace(b'"running":1', b'"running":2', 1))
    with pytest.raises(Refusal, match=r"line 4: does not follow from the line before it") as found:
        read_state(tmp_path)
    assert found.value.code == 19
    with pytest.raises(Refusal, match=str(path)), open_journal(tmp_path):
        pass


@pytest.mark.parametrize("keep", ["nothing", "one byte", "all but the newline"])
def test_a_torn_tail_is_cut_and_the_cut_is_recorded(
    ledger: bytes, tmp_path: Path, keep: str
) -> None:
    *whole, last = ledger.splitlines(keepends=True)
    torn = {"nothing": b"", "one byte": last[:1], "all but the newline": last[:-1]}[keep]
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(whole) + torn)
    assert read_state(tmp_path) is not None
    with open_journal(tmp_path) as journal:
        cuts = journal.state.cuts
        journal.append(run_start())
    assert [(cut.bytes, cut.sha256) for cut in cuts] == (
        [(len(torn), digest_of(torn))] if torn else []
    )
    assert path.read_bytes().startswith(b"".join(whole))
    assert faults_of(path.read_bytes()) == []


def test_a_tail_torn_at_any_byte_loses_nothing_that_was_whole(
    ledger: bytes, tmp_path: Path
) -> None:
    for size in range(len(ledger) - 700, len(ledger)):
        path = tmp_path / "ledger.jsonl"
        path.write_bytes(ledger[:size])
        with open_journal(tmp_path) as journal:
            assert len(journal.state.cuts) == (not ledger[:size].endswith(b"\n"))
        whole = ledger[: ledger.rindex(b"\n", 0, size) + 1]
        assert path.read_bytes().startswith(whole)
        assert faults_of(path.read_bytes()) == []


def test_a_cut_that_was_itself_torn_is_cut_again(ledger: bytes, tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(ledger[:-5])
    with open_journal(tmp_path):
        pass
    first = path.read_bytes()
    whole = ledger[: ledger[:-5].rindex(b"\n") + 1]
    cut = first[len(whole) :]
    for size in range(1, len(cut)):
        # As a driver leaves it that ends while it writes over the tail.
        tail = bytearray(ledger[len(whole) : -5])
        tail[: min(size, len(cut))] = cut[:size]
        path.write_bytes(whole + bytes(tail))
        with open_journal(tmp_path) as journal:
            assert journal.state.cuts
        assert faults_of(path.read_bytes()) == []


def test_the_first_line_of_all_can_be_torn(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_bytes(b'{"kind":"run:st')
    with open_journal(tmp_path) as journal:
        journal.append(run_start())
        assert isinstance(journal.state.cuts[0], LedgerCut)
        assert journal.state.run == 1
    assert faults_of((tmp_path / "ledger.jsonl").read_bytes()) == []


def test_a_ledger_is_its_owner_s_and_no_link(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append(run_start())
    path = tmp_path / "ledger.jsonl"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refusal, match="is a link") as refused, open_journal(tmp_path):
        pass
    assert refused.value.code == 19


def test_a_ledger_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "ledger.jsonl")
    with pytest.raises(Refusal, match="is no plain file") as refused, open_journal(tmp_path):
        pass
    assert refused.value.code == 19


NOBODY_S_SUM = encode(
    SessionDecision(
        session="b", attempt=1, decision="again", reason="r", cost=Reported(Decimal("0.25"))
    )
)[:-1].replace(b"0.25", b"1E+999999999")


@pytest.mark.parametrize(
    ("unread", "rule"),
    [
        (b"{", "is no line of a ledger"),
        (b'{"x":' + b"[" * 100_000, "nested too deep"),
        (NOBODY_S_SUM, "nobody can have spent"),
    ],
    ids=["no JSON", "too deep", "no sum"],
)
def test_a_line_that_cannot_be_read_is_one_fault(unread: bytes, rule: str) -> None:
    data, previous = bytearray(), START
    for number in range(1, 6):
        line = run_start() if number == 1 else Heartbeat(running=number)
        stamped = structs.replace(line, ts=1000, run=1, sequence=number, previous=previous)
        text = unread if number == 3 else encode(stamped)[:-1]
        data += text + b"\n"
        previous = digest_of(text)
    faults = read(bytes(data)).faults
    assert [fault.number for fault in faults] == [3]
    assert rule in faults[0].rule


def test_a_line_is_on_disk_before_append_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fdatasync

    def fdatasync(descriptor: int) -> None:
        real(descriptor)
        synced.append(os.fstat(descriptor).st_size)

    with open_journal(tmp_path) as journal:
        monkeypatch.setattr(os, "fdatasync", fdatasync)
        for line in (run_start(), started("a"), ended("a")):
            journal.append(line)
            assert synced[-1] == (tmp_path / "ledger.jsonl").stat().st_size
    assert len(synced) == 3


@pytest.mark.parametrize("call", ["pwrite", "fdatasync"])
def test_what_cannot_be_written_ends_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with open_journal(tmp_path) as journal:
        journal.append(run_start())
        with monkeypatch.context() as patched:
            patched.setattr(os, call, full)
            with pytest.raises(OSError, match="No space left") as failed:
                journal.append(started("a"))
        assert failed.value.errno == errno.ENOSPC
        assert str(failed.value.filename) == str(tmp_path / "ledger.jsonl")
        with pytest.raises(OSError, match="No space left"):
            journal.append(started("b"))
    assert faults_of((tmp_path / "ledger.jsonl").read_bytes()) == []


def test_a_write_in_part_leaves_a_tail_that_the_next_driver_cuts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.pwrite, []

    def in_part(descriptor: int, data: bytes, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(descriptor, bytes(data)[:40], offset)

    with open_journal(tmp_path) as journal:
        journal.append(run_start())
        monkeypatch.setattr(os, "pwrite", in_part)
        with pytest.raises(OSError, match="No space left"):
            journal.append(started("a"))
    monkeypatch.undo()
    with open_journal(tmp_path) as journal:
        assert [cut.bytes for cut in journal.state.cuts] == [40]
        assert journal.state.sessions == {}


def test_many_threads_write_one_chain(tmp_path: Path) -> None:
    with open_journal(tmp_path) as journal:
        journal.append(run_start(400))

        def work(place: int) -> None:
            for number in range(50):
                journal.append(started(f"{place}-{number}"))
                journal.append(ended(f"{place}-{number}"))

        threads = [threading.Thread(target=work, args=(place,)) for place in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    state = read_state(tmp_path)
    assert state is not None
    assert state.totals().recorded == 400


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ([started("a")], "stands before any run:start"),
        ([run_start(), started("a", 2)], "is of attempt 2 of a, after 0"),
        ([run_start(), ended("a")], "none was started"),
        ([run_start(), started("a"), ended("a"), ended("a")], "which is recorded already"),
        ([run_start(), started("a"), ended("a"), started("a", 2)], "which is recorded already"),
        ([run_start(), started("a"), ended("a", 2)], "the latest is 1"),
        (
            [
                run_start(),
                started("a"),
                started("a", 2),
                SessionDecision(
                    session="a", attempt=1, decision="again", reason="late", cost=UNKNOWN
                ),
            ],
            "session:decision is of attempt 1 of a, and the latest is 2",
        ),
    ],
)
def test_a_line_that_cannot_follow_is_refused(lines: list, says: str) -> None:
    with pytest.raises(OrderError, match=says):
        fold(lines)


def test_an_order_error_is_found_in_a_file_too(tmp_path: Path) -> None:
    state = State()
    with open_journal(tmp_path) as journal:
        journal.append(run_start())
        with pytest.raises(OrderError):
            journal.append(ended("a"))
        with pytest.raises(OSError, match="was not written"):
            journal.append(started("a"))
    assert state.lines == 0


@pytest.mark.parametrize(
    ("before", "after", "counts"),
    [
        (b"", b"a\nb\n", (2, 0)),
        (b"a\nb\nc\n", b"a\nx\nc\n", (1, 1)),
        (b"a\nb\n", b"", (0, 2)),
        (b"a\n", b"a", (0, 0)),
        (b"a\0b\n", b"x\ny\n", (0, 0)),
        (b"x\n", b"\0", (0, 0)),
        (b"a\nb\nc\nd\n", b"a\nc\nb\nd\n", (1, 1)),
        (b"same\n" * 10, b"same\n" * 12, (2, 0)),
    ],
)
def test_lines_added_and_removed(before: bytes, after: bytes, counts: tuple[int, int]) -> None:
    assert line_counts(before, after) == counts


def test_texts_too_long_to_compare_count_whole_between_head_and_tail() -> None:
    size = int(COMPARED**0.5) + 1
    before = b"head\n" + b"".join(b"a%d\n" % n for n in range(size)) + b"tail\n"
    after = b"head\n" + b"".join(b"b%d\n" % n for n in range(size)) + b"tail\n"
    assert line_counts(before, after) == (size, size)


@given(st.lists(st.sampled_from("abc"), max_size=12), st.lists(st.sampled_from("abc"), max_size=12))
def test_lines_added_less_removed_is_what_the_text_grew_by(old: list[str], new: list[str]) -> None:
    before, after = ("".join(f"{line}\n" for line in lines).encode() for lines in (old, new))
    added, removed = line_counts(before, after)
    assert added - removed == len(new) - len(old)
    assert 0 <= removed <= len(old)
    assert (added, removed) != (0, 0) or old == new
