"""Reading the text of a plan that another engine printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.plan.reading import read_plan
from recorder.refusal import ExitCode, Refusal


def fixture_plan(shared: Path) -> str:
    return (shared / "conformance" / "headwater" / "fixtures" / "plan.txt").read_text()


def test_the_members_are_copied_verbatim_from_their_first_lines_b05(shared: Path) -> None:
    text = fixture_plan(shared).replace("seed: 0", "seed: 007 ") + "\nlock: sha256:later\n"
    read = read_plan(text, "plan.txt")
    assert read.members["lock"] == "sha256:fixture"
    assert read.members["seed"] == "007 "
    assert read.members["harness"] == "0.2.1"


def test_the_selection_and_the_read_set_are_read_b06(shared: Path) -> None:
    read = read_plan(fixture_plan(shared), "plan.txt")
    assert [probe.id for probe in read.probes] == [
        "PROBE-FIX-answered",
        "PROBE-FIX-cited",
        "PROBE-FIX-not-opened",
        "PROBE-FIX-opened",
        "PROBE-FIX-patched",
    ]
    assert read.probe("PROBE-FIX-answered").answers == ("no", "yes")
    assert read.probe("PROBE-FIX-cited").answers == ()
    assert len(read.read_set) == 5
    assert read.max_turns is None


def test_a_plan_that_stops_sessions_at_a_cap_says_so_b07(shared: Path) -> None:
    text = fixture_plan(shared) + "\nEvery session stops at a turn cap of 80.\n"
    assert read_plan(text, "plan.txt").max_turns == 80


@pytest.mark.parametrize("whole", [True, False])
def test_a_plan_with_the_refusal_heading_is_eleven_whatever_its_command_said_b01(
    shared: Path, whole: bool
) -> None:
    text = "## This run does not start\n\n580 sessions are too many.\n\n"
    read = read_plan(text + (fixture_plan(shared) if whole else ""), "plan.txt")
    with pytest.raises(Refusal, match="580 sessions are too many") as refused:
        read.probe("PROBE-FIX-answered")
    assert refused.value.code == ExitCode.PLAN_REFUSES


def test_a_probe_that_is_not_selected_is_eleven_b03(shared: Path) -> None:
    read = read_plan(fixture_plan(shared), "plan.txt")
    for name in ("PROBE-FIX-open", "PROBE-FIX-opened-too"):
        with pytest.raises(Refusal, match=f"does not select {name}") as refused:
            read.probe(name)
        assert refused.value.code == ExitCode.PLAN_REFUSES


@pytest.mark.parametrize(
    "member", ["lock", "tree", "selection", "read_set", "seed", "harness", "tier"]
)
def test_a_text_without_a_member_is_no_plan(shared: Path, member: str) -> None:
    text = "\n".join(
        line for line in fixture_plan(shared).split("\n") if not line.startswith(f"{member}: ")
    )
    with pytest.raises(Refusal, match=rf"states no {member}\b") as refused:
        read_plan(text, "plan.txt")
    assert refused.value.code == ExitCode.PLAN


def test_an_older_plan_without_a_read_set_is_no_plan(shared: Path) -> None:
    old = shared / "conformance" / "headwater" / "fixtures-other-versions" / "plan.483e5f7.txt"
    with pytest.raises(Refusal, match="read_set"):
        read_plan(old.read_text(), old.name)
