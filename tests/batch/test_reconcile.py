"""What a person decides about sessions without an end, and what is assembled of a batch."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import yaml

from recorder.batch.assembling import assemble_batch
from recorder.batch.batch import held
from recorder.batch.reconcile import Decision, decide, uncertain
from recorder.ledger.entries import Choice, Estimated
from recorder.refusal import Refusal
from tests.batch.null_host import Act, Batch, DriverKilledError, NullHost, as_usual, spec_of
from tests.batch.test_resume import FIRST, only, state_of
from tests.recording.rig import EXAMPLES, recorder

SECOND = "L1-campaign-present-p2-r1"
TRANSCRIPT = "assembled/L1-campaign-present.md"


@pytest.fixture
def batch(tmp_path: Path) -> Batch:
    shutil.copytree(EXAMPLES / "corpus", tmp_path / "corpus")
    return Batch(tmp_path / "corpus", tmp_path / "out", spec_of(tmp_path / "corpus"))


def killed(batch: Batch) -> NullHost:
    """A batch whose first session reached the provider twice and has no end."""
    host = batch.host(only(FIRST, Act(requests=2, dies="spent")))
    with pytest.raises(DriverKilledError):
        batch.run(host)
    return NullHost(batch.provider, dead=host.dead)


def decided(
    batch: Batch, host: NullHost, first: Choice | None, every: Choice | None = None
) -> None:
    sessions = {} if first is None else {FIRST: first}
    decide(batch.out, Decision(sessions, every, "as I saw"), host.collect)


def front_matter(batch: Batch, name: str = TRANSCRIPT) -> dict[str, str]:
    return yaml.safe_load((batch.out / name).read_text().split("---\n")[1])


def test_what_waits_is_listed_with_what_is_known_of_it(batch: Batch) -> None:
    host = killed(batch)
    (found,) = uncertain(batch.out, host.collect)
    assert (found.session, found.attempt, found.requests, found.log_whole) == (FIRST, 1, 2, True)
    assert isinstance(found.cost, Estimated)
    assert {"egress.jsonl", "raw.jsonl", "started"} <= set(found.files)

    def never(*_: object) -> None:
        raise AssertionError("the ledger knows it already")

    assert uncertain(batch.out, never) == (found,)


def test_a_session_that_is_to_run_again_is_the_next_attempt_and_its_cost_stays(
    batch: Batch,
) -> None:
    host = killed(batch)
    decided(batch, host, "again")
    report = batch.run(host)
    assert report.totals.recorded == 3
    first, second = state_of(batch).sessions[FIRST]
    assert first.decision is not None
    assert first.decision.reason == "as I saw"
    assert second.start.why == "decided"
    abandoned = first.cost
    assert isinstance(abandoned, Estimated)
    assert report.totals.usd == 3 * second.end.cost.usd + abandoned.usd  # type: ignore[union-attr]
    assert batch.effects.count(FIRST) == 3
    text = (batch.out / TRANSCRIPT).read_text()
    assert "cost_cents: 75" in text
    assert "1 attempt was followed by another" in text


def test_a_session_that_is_left_out_is_named_and_adds_nothing(batch: Batch) -> None:
    host = killed(batch)
    decided(batch, host, "leave-out")
    report = batch.run(host)
    assert (report.totals.recorded, report.totals.left_out, report.standing.code) == (2, 1, 0)
    text = (batch.out / TRANSCRIPT).read_text()
    assert "cost_cents: 50" in text
    assert f"a person left out, with a reason that the ledger holds: `{FIRST}`" in text
    assert front_matter(batch)["status"] == "current"
    assert "2 of 3 sessions" in front_matter(batch)["summary"]
    assert "1 sessions uncounted" in front_matter(batch)["summary"]
    assert batch.effects.count(FIRST) == 2


def test_a_decision_is_about_one_attempt_and_no_other(batch: Batch) -> None:
    host = killed(batch)
    decided(batch, host, "again")
    again = batch.host(only(FIRST, Act(requests=1, dies="spent")))
    with pytest.raises(DriverKilledError):
        batch.run(again)
    with pytest.raises(Refusal) as refused:
        batch.run(NullHost(batch.provider, dead=again.dead))
    assert refused.value.code == 18
    first, second = state_of(batch).sessions[FIRST]
    assert first.decision is not None
    assert second.decision is None
    decided(batch, NullHost(batch.provider), None, "leave-out")
    assert state_of(batch).standing(FIRST) == "left-out"
    assert state_of(batch).sessions[FIRST][1].decision.attempt == 2  # type: ignore[union-attr]


def test_a_decision_about_what_does_not_wait_is_refused(batch: Batch) -> None:
    killed(batch)
    host = NullHost(batch.provider)
    ledger = batch.out / "ledger.jsonl"
    before = len(ledger.read_bytes().splitlines())
    for name, says in (
        (SECOND, "waits for no decision"),
        ("other", "no attempt of it was started"),
    ):
        with pytest.raises(Refusal, match=says) as refused:
            decide(batch.out, Decision({name: "again"}, None, "why"), host.collect)
        assert refused.value.code == 2
    with pytest.raises(Refusal, match="--reason is empty"):
        decide(batch.out, Decision({FIRST: "again"}, None, " \n "), host.collect)
    with held(batch.out), pytest.raises(Refusal) as refused:
        decide(batch.out, Decision({FIRST: "again"}, None, "why"), host.collect)
    assert refused.value.code == 20
    # What the log says was written down, and nothing else.
    assert len(ledger.read_bytes().splitlines()) == before + 1


def test_a_rehearsal_waits_for_nobody(batch: Batch) -> None:
    """It spends nothing: what has no end runs again by itself."""
    host = killed(batch)
    pinned = json.loads((batch.out / "batch.json").read_bytes())
    (batch.out / "batch.json").write_text(json.dumps({**pinned, "rehearsal": "sha256:0"}))
    assert uncertain(batch.out, host.collect) == ()


def test_the_verb_lists_and_decides(batch: Batch) -> None:
    host = killed(batch)
    with pytest.raises(Refusal):
        batch.run(host)
    listed = recorder("batch", "reconcile", batch.out)
    assert (listed.code, listed.err) == (0, "")
    assert FIRST in listed.out
    assert "(estimated)" in listed.out
    told = json.loads(recorder("batch", "reconcile", batch.out, "--json").out)
    assert [each["session"] for each in told["sessions"]] == [FIRST]
    unreasoned = recorder("batch", "reconcile", batch.out, "--again", FIRST)
    assert unreasoned.code == 2
    assert "needs --reason" in unreasoned.err
    ran = recorder("batch", "reconcile", batch.out, "--leave-out", FIRST, "--reason", "was seen")
    assert (ran.code, ran.err) == (0, "")
    assert "is left out" in ran.out
    assert state_of(batch).standing(FIRST) == "left-out"
    assert "no session waits" in recorder("batch", "reconcile", batch.out).out


# Assembly.


def test_assembling_twice_gives_the_same_bytes_and_what_the_run_wrote(
    batch: Batch, tmp_path: Path
) -> None:
    batch.run()
    written = (batch.out / TRANSCRIPT).read_bytes()
    for directory in ("one", "two"):
        ran = recorder("batch", "assemble", batch.out, "--out", tmp_path / directory)
        assert (ran.code, ran.err) == (0, "")
        assert (tmp_path / directory / "L1-campaign-present.md").read_bytes() == written
    moved = batch.out.rename(tmp_path / "elsewhere")
    printed = recorder("batch", "assemble", moved, "--out", "-")
    assert printed.out.encode() == written
    assert recorder("check", tmp_path / "one" / "L1-campaign-present.md").code == 0


def test_the_block_is_the_earliest_day_and_the_sum_o38(batch: Batch) -> None:
    batch.run()
    days = [
        yaml.safe_load(path.read_text().split("```yaml\n")[1].split("```")[0])["at"]
        for path in batch.out.glob("sessions/*/record.md")
    ]
    text = (batch.out / TRANSCRIPT).read_text()
    assert f"at: {json.dumps(str(min(days)))}" in text
    assert "cost_cents: 75" in text
    front = front_matter(batch)
    assert list(front) == [
        *("id", "status", "status_since", "summary", "last_verified", "tier", "arm", "title"),
    ]
    assert front["status"] == "current"
    sessions = [line.split('"')[1] for line in text.splitlines() if line.startswith("  session:")]
    assert sessions == sorted(sessions)


def test_a_session_that_did_not_record_is_counted_named_and_adds_nothing_o40_o41(
    batch: Batch,
) -> None:
    report = batch.run(batch.host(only(FIRST, Act(code=10, dollars="5"))))
    text = (batch.out / TRANSCRIPT).read_text()
    assert "cost_cents: 50" in text
    assert f"1 session failed to record: `{FIRST}` (exit 10)." in text
    front = front_matter(batch)
    assert front["status"] == "draft"
    assert "2 of 3 sessions, 50 cents" in front["summary"]
    assert "1 sessions uncounted" in front["summary"]
    assert report.standing.code == 17
    ran = recorder("batch", "assemble", batch.out, "--out", "-")
    # 17 is sessions that failed alone: what a cap refused is 16 (O45).
    assert ran.code == 17
    assert ran.out.encode() == text.encode()


def test_a_line_that_goes_on_has_no_transcript_meanwhile(batch: Batch) -> None:
    batch.run(batch.host(only(FIRST, Act(code=10))))
    assert (batch.out / TRANSCRIPT).exists()
    host = batch.host(only(FIRST, Act(dies="spent")))
    with pytest.raises(DriverKilledError):
        batch.run(host, retry_failed=True)
    assert not (batch.out / TRANSCRIPT).exists()
    assembled = assemble_batch(batch.out)
    assert assembled.transcripts[0].text is not None
    assert "have no end and wait" in assembled.transcripts[0].text


def test_assembling_what_is_no_batch_is_refused_o42(tmp_path: Path) -> None:
    ran = recorder("batch", "assemble", tmp_path)
    assert ran.code == 2
    assert ran.err == f"recorder: {tmp_path}: is no batch's directory: it holds no batch.json\n"
    assert list(tmp_path.iterdir()) == []


def test_a_finished_batch_that_may_only_be_read_assembles(batch: Batch) -> None:
    """Read by a user who may write nothing of it: root may write everywhere."""
    batch.run()
    written = (batch.out / TRANSCRIPT).read_bytes()
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="recorder-read-only-") as directory:
        out = Path(shutil.copytree(batch.out, f"{directory}/out"))
        paths = [Path(directory), out, *out.rglob("*")]
        for path in paths:
            path.chmod(0o555 if path.is_dir() else 0o444)
        before = {path: path.lstat().st_mtime_ns for path in paths}
        try:
            assert assembled_by_nobody(out) == written
        finally:
            for path in paths:
                if path.is_dir():
                    path.chmod(0o700)
        assert {path: path.lstat().st_mtime_ns for path in paths} == before


def assembled_by_nobody(out: Path) -> bytes:
    """The transcript as a process without rights assembles it; empty where it could not."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of this process may run on in the child, whatever happens in it.
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            text = assemble_batch(out).transcripts[0].text or ""
            os.write(writing, text.encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    return text


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("changed", "was changed after the session"),
        ("added", "was not there when the session ended"),
        ("removed", "is missing, and was there when the session ended"),
        ("swapped", "when the session ended"),
    ],
)
def test_a_directory_that_is_not_what_the_ledger_says_is_refused(
    batch: Batch, how: str, says: str
) -> None:
    batch.run()
    sessions = batch.out / "sessions"
    match how:
        case "changed":
            with (sessions / FIRST / "stderr.log").open("a") as file:
                file.write("more")
        case "added":
            (sessions / FIRST / "more.txt").write_text("more")
        case "removed":
            (sessions / FIRST / "stderr.log").unlink()
        case _:
            (sessions / FIRST).rename(sessions / "aside")
            (sessions / SECOND).rename(sessions / FIRST)
            (sessions / "aside").rename(sessions / SECOND)
    for run in (lambda: assemble_batch(batch.out), lambda: batch.run()):
        with pytest.raises(Refusal, match=says) as refused:
            run()
        assert refused.value.code == 19


def test_a_ledger_that_is_corrupt_in_the_middle_stops_everything(batch: Batch) -> None:
    batch.run()
    path = batch.out / "ledger.jsonl"
    path.write_bytes(path.read_bytes().replace(b'"slot":0', b'"slot":1', 1))
    before = path.read_bytes()
    for run in (lambda: assemble_batch(batch.out), lambda: batch.run(batch.host(as_usual))):
        with pytest.raises(Refusal, match=r"ledger.jsonl: line 3: ") as refused:
            run()
        assert refused.value.code == 19
    assert path.read_bytes() == before
