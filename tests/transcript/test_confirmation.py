"""What ``check --plan`` refuses, marks and drops."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, structs

from recorder.plan.reading import PlanText, read_plan, read_plan_file
from recorder.refusal import ExitCode, Refusal
from recorder.transcript.checker import Checked, check
from recorder.transcript.confirmation import confirm
from recorder.transcript.contract import Event
from recorder.transcript.file import check_file


@pytest.fixture
def fixtures(shared: Path) -> Path:
    return shared / "conformance" / "headwater" / "fixtures"


@pytest.fixture
def plan(fixtures: Path) -> PlanText:
    return read_plan_file(fixtures / "plan.txt")[0]


@pytest.fixture
def transcript(fixtures: Path) -> Checked:
    return check_file(fixtures / "transcript.md")


def changed(checked: Checked, **members: str) -> Checked:
    return Checked(
        checked.name,
        structs.replace(checked.identity, **members),
        checked.events,
        checked.rehearsal,
    )


def with_events(checked: Checked, *probes: str) -> Checked:
    events = tuple(Event(probe=probe, session=str(n)) for n, probe in enumerate(probes))
    return Checked(checked.name, checked.identity, events, checked.rehearsal)


def without_read_set(plan_text: str) -> str:
    head, _, rest = plan_text.partition("## The read set")
    return head + "## What the" + rest.partition("## What the")[2]


def test_an_event_of_a_probe_that_is_not_selected_is_dropped_and_counted_s02(
    plan: PlanText, transcript: Checked
) -> None:
    confirmed = confirm(transcript, plan)
    assert [(item.number, item.probe) for item in confirmed.dropped] == [
        (6, "PROBE-FIX-not-declared")
    ]
    assert "nothing declares what a session against it" in confirmed.dropped[0].reason
    lines = confirmed.lines()
    assert "6 events over 5 of the 5 probes" in lines[0]
    assert lines[0].endswith("in 5 sessions and 4 tool calls")
    assert lines[1].endswith("1 of 6 events did not count")


def test_an_answer_outside_of_the_set_is_a_verdict_and_no_refusal_s05(
    fixtures: Path, plan: PlanText
) -> None:
    confirmed = confirm(check_file(fixtures / "transcript-missed.md"), plan)
    assert "maybe" in [event.answer for event in confirmed.events]
    assert confirmed.dropped == ()


def test_a_key_that_is_absent_is_never_read_as_an_empty_list_s06(
    fixtures: Path, plan: PlanText
) -> None:
    confirmed = confirm(check_file(fixtures / "transcript-refused.md"), plan)
    events = {event.probe: event for event in confirmed.events}
    assert events["PROBE-FIX-opened"].calls is UNSET
    assert events["PROBE-FIX-answered"].answer is UNSET
    assert events["PROBE-FIX-cited"].produced is UNSET
    produced = events["PROBE-FIX-patched"].produced
    assert produced is not UNSET
    assert produced[0].findings is UNSET


def test_an_identity_without_a_read_set_is_refused_s13(shared: Path) -> None:
    old = shared / "conformance/headwater/fixtures-other-versions/transcript-refused.483e5f7.md"
    with pytest.raises(Refusal, match="key read_set: is missing") as refused:
        check_file(old)
    assert refused.value.code == ExitCode.CORRUPT


def test_an_extra_key_refuses_the_file_s11(fixtures: Path) -> None:
    with pytest.raises(Refusal, match="key reasoning") as refused:
        check_file(fixtures / "transcript-with-prose.md")
    assert refused.value.code == ExitCode.CORRUPT


def test_a_moved_lock_stands_where_the_plan_has_a_read_set_for_the_probes(
    fixtures: Path, plan: PlanText, transcript: Checked
) -> None:
    # All of its probes are selected.
    moved = changed(check_file(fixtures / "transcript-missed.md"), lock="sha256:other")
    assert any("the lock moved" in mark for mark in confirm(moved, plan).marks)
    # It names one that is not; the recorded selection is the plan's.
    same = changed(transcript, lock="sha256:other", selection=plan.members["selection"])
    assert len(confirm(same, plan).dropped) == 1


@pytest.mark.parametrize("why", ["no read set", "another probe", "no event"])
def test_a_moved_lock_is_refused_where_the_plan_has_no_read_set_for_the_probes(
    fixtures: Path, transcript: Checked, why: str
) -> None:
    text = (fixtures / "plan.txt").read_text()
    moved = changed(check_file(fixtures / "transcript-missed.md"), lock="sha256:other")
    if why == "no read set":
        text = without_read_set(text)
    elif why == "another probe":
        moved = changed(transcript, lock="sha256:other")
    else:
        moved = with_events(moved)
    with pytest.raises(Refusal, match=r"sha256:other.*sha256:fixture") as refused:
        confirm(moved, read_plan(text, "plan.txt"))
    assert refused.value.code == ExitCode.CORRUPT


def test_the_same_lock_stands_without_a_read_set(fixtures: Path, transcript: Checked) -> None:
    plan = read_plan(without_read_set((fixtures / "plan.txt").read_text()), "plan.txt")
    assert plan.read_set == {}
    assert len(confirm(transcript, plan).events) == 5


def test_a_read_set_that_moved_is_a_mark_and_no_refusal(
    plan: PlanText, transcript: Checked
) -> None:
    assert not any("read set" in mark for mark in confirm(transcript, plan).marks)
    marks = confirm(changed(transcript, read_set="sha256:before"), plan).marks
    assert any("recorded sha256:before" in mark and "grades" in mark for mark in marks)


def test_a_plan_of_more_probes_marks_no_read_set_that_still_stands(
    plan: PlanText, fixtures: Path
) -> None:
    """A recording of two probes, held against the plan of all five."""
    missed = check_file(fixtures / "transcript-missed.md")
    part = with_events(missed, "PROBE-FIX-opened", "PROBE-FIX-answered")
    # Two rows, `path TAB digest LF`: the probes' own documents; one of them examines the other.
    rows = "".join(
        f"{path}\t{plan.read_set[path]}\n"
        for path in ("corpus/probes/0001-opened.md", "corpus/probes/0002-answered.md")
    )
    own = "sha256:" + hashlib.sha256(rows.encode()).hexdigest()
    names = b"PROBE-FIX-answered\nPROBE-FIX-opened"
    selection = "sha256:" + hashlib.sha256(names).hexdigest()
    part = changed(part, read_set=own, selection=selection, lock="sha256:other")
    marks = confirm(part, plan).marks
    assert len(marks) == 1
    assert "the lock moved" in marks[0]


def test_a_plan_that_refuses_selects_nothing(transcript: Checked, fixtures: Path) -> None:
    heading = "## This run does not start\n\nToo much.\n\n"
    bare = read_plan(heading, "plan.txt")
    with pytest.raises(Refusal, match="Too much") as refused:
        confirm(transcript, bare)
    assert refused.value.code == ExitCode.PLAN_REFUSES
    head = (fixtures / "plan.txt").read_text().partition("## The selection")[0]
    confirmed = confirm(transcript, read_plan(heading + head, "plan.txt"))
    assert (len(confirmed.dropped), confirmed.events) == (6, ())


NAMES = st.sampled_from(["PROBE-FIX-opened", "PROBE-FIX-cited", "PROBE-FIX-x", "PROBE-Y"])


@given(probes=st.lists(NAMES, max_size=8))
def test_every_event_counts_or_is_dropped_and_none_is_both(shared: Path, probes: list[str]) -> None:
    fixtures = shared / "conformance" / "headwater" / "fixtures"
    plan = read_plan_file(fixtures / "plan.txt")[0]
    checked = check((fixtures / "transcript-missed.md").read_text(), "t.md")
    confirmed = confirm(with_events(checked, *probes), plan)
    selected = {probe.id for probe in plan.probes}
    assert [event.probe for event in confirmed.events] == [p for p in probes if p in selected]
    assert [item.probe for item in confirmed.dropped] == [p for p in probes if p not in selected]


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recorder.cli.app", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_verb_says_what_moved_and_ends_with_the_gravest_code(
    fixtures: Path, tmp_path: Path
) -> None:
    good = tmp_path / "good.md"
    shutil.copy(fixtures / "transcript.md", good)
    ended = run("check", good, "--plan", fixtures / "plan.txt")
    assert ended.returncode == 0
    assert "1 of 6 events did not count" in ended.stdout
    bad = tmp_path / "bad.md"
    bad.write_text(good.read_text().replace("lock: sha256:fixture", "lock: sha256:other"))
    ended = run("check", good, bad, "--plan", fixtures / "plan.txt")
    assert ended.returncode == ExitCode.CORRUPT
    assert "sha256:other" in ended.stderr
    assert str(good) in ended.stdout
    assert str(bad) not in ended.stdout


@pytest.mark.parametrize(
    ("content", "code"), [(None, ExitCode.USAGE), (b"\xff", ExitCode.USAGE), (b"x", ExitCode.PLAN)]
)
def test_a_plan_that_cannot_be_read_is_refused(
    fixtures: Path, tmp_path: Path, content: bytes | None, code: ExitCode
) -> None:
    path = tmp_path / "plan.txt"
    if content is not None:
        path.write_bytes(content)
    ended = run("check", fixtures / "transcript.md", "--plan", path)
    assert ended.returncode == code
    assert ended.stderr.count("\n") == 1
    assert "Traceback" not in ended.stderr
