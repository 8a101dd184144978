"""A line of a batch: whose plan it follows, and what is refused before any engine is asked."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

import pytest

from recorder.batch.line import LaidLine, PlanSource, lay_line, plan_line
from recorder.batch.spec import LineSpec, read_spec
from recorder.batch.tools import refuse_leaking_tools
from recorder.plan.composition import compose_plan
from recorder.plan.probes import section
from recorder.plan.rendering import render_plan
from recorder.plan.run_plan import RunPlan
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import command_line

UNITS = "PROBE-EX-units"


@pytest.fixture
def corpus(project: Path, tmp_path: Path) -> Path:
    shutil.copytree(project / "examples" / "corpus", tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.fixture
def plan_text(corpus: Path, tmp_path: Path) -> Path:
    """A plan as another engine would print it: another harness, lock and answers than ours."""
    text = render_plan(compose_plan(corpus, tier="campaign"))
    lines = [
        f"harness: 9.8.7{line[len(line) :]}" if line.startswith("harness: ") else line
        for line in text.split("\n")
    ]
    text = "\n".join(lines).replace("answers: bytes, kibibytes, records", "answers: bytes, other")
    text = text.replace("turn cap of 12", "turn cap of 80")
    path = tmp_path / "plan.txt"
    path.write_text(text)
    return path


def line(**members: object) -> LineSpec:
    return LineSpec(**{"tier": "campaign", "arm": "present", **members})  # type: ignore[arg-type]


def planned(corpus: Path, spec: LineSpec, command: str | None = None) -> RunPlan:
    return plan_line(corpus, spec, PlanSource(command))


def laid(corpus: Path, tmp_path: Path, spec: LineSpec, **options: object) -> LaidLine:
    for laid_before in tmp_path.glob("tree*"):
        shutil.rmtree(laid_before)
    return lay_line(corpus, spec, tmp_path / "tree", **options)  # type: ignore[arg-type]


def engine(tmp_path: Path, body: str) -> str:
    """A command that stands for another engine's."""
    path = tmp_path / "engine.sh"
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{path} probe plan"


def refused(code: ExitCode, says: str, corpus: Path, spec: LineSpec, command: str) -> Refusal:
    with pytest.raises(Refusal, match=says) as caught:
        planned(corpus, spec, command)
    assert caught.value.code == code
    return caught.value


def test_a_plans_text_is_copied_and_never_composed_again_b05_b06(
    corpus: Path, plan_text: Path
) -> None:
    native = planned(corpus, line())
    copied = planned(corpus, line(plan=str(plan_text)))
    assert copied.members.harness == "9.8.7"
    assert copied.members.tree == native.members.tree
    assert copied.task(UNITS).answers == ("bytes", "other")
    assert copied.task(UNITS).task == native.task(UNITS).task
    assert copied.text == plan_text.read_text()
    assert copied.repetitions == native.repetitions == 2
    assert copied.task("PROBE-EX-report").answers == ()


@pytest.mark.parametrize("source", ["a file", "a command"])
def test_the_turn_cap_of_a_plan_reaches_the_harness_b07(
    corpus: Path, plan_text: Path, tmp_path: Path, source: str
) -> None:
    command = engine(tmp_path, f"cat {plan_text}") if source == "a command" else None
    spec = line() if command else line(plan=str(plan_text))
    found = laid(corpus, tmp_path, spec, plan_command=command)
    argv = command_line("Do it.", max_turns=found.line.max_turns)
    assert argv[argv.index("--max-turns") + 1] == "80"


def test_a_turn_cap_that_is_given_reaches_the_harness_b08(corpus: Path, tmp_path: Path) -> None:
    declaration = corpus / ".headwater" / "probe.yml"
    text = declaration.read_text().replace("    max_turns: 12\n", "")
    declaration.write_text(text)
    found = laid(corpus, tmp_path, line(), max_turns=80)
    assert found.line.max_turns == 80
    argv = command_line("Do it.", max_turns=found.line.max_turns)
    assert argv[argv.index("--max-turns") + 1] == "80"
    # B09: no cap is declared and none given.
    assert laid(corpus, tmp_path, line()).line.max_turns is None


def test_a_command_that_prints_a_refusal_and_ends_well_is_eleven_b01(
    corpus: Path, tmp_path: Path
) -> None:
    says = "## This run does not start\\n\\n580 sessions are too many.\\n"
    command = engine(tmp_path, f"printf '{says}'")
    refused(ExitCode.PLAN_REFUSES, "580 sessions are too many", corpus, line(), command)


def test_a_command_that_fails_is_five_with_what_it_said_b04(corpus: Path, tmp_path: Path) -> None:
    command = engine(tmp_path, "echo 'no lock here' >&2; exit 7")
    refusal = refused(ExitCode.PLAN, "ended with 7", corpus, line(), command)
    assert any("no lock here" in reason for reason in refusal.reasons)
    refused(ExitCode.PLAN, "states no lock", corpus, line(), engine(tmp_path, "echo hello"))


def test_a_command_that_is_not_there_is_three(corpus: Path) -> None:
    refused(ExitCode.MISSING, "cannot be run", corpus, line(), "/nowhere/headwater probe plan")
    refused(ExitCode.USAGE, "--plan-command", corpus, line(), "'unclosed")


def test_what_narrows_a_plan_reaches_the_command_unchanged_b10(
    corpus: Path, plan_text: Path, tmp_path: Path
) -> None:
    said = tmp_path / "said"
    command = engine(tmp_path, f'pwd > {said}; printf "%s\\n" "$@" >> {said}; cat {plan_text}')
    spec = line(category="discovery", exclude=("A", "B C"), repetitions=3)
    plan_line(corpus, spec, PlanSource(command, seed=5))
    assert said.read_text().splitlines() == [
        str(corpus),
        *("probe", "plan", "--tier", "campaign", "--category", "discovery"),
        *("--exclude", "A", "--exclude", "B C", "--repetitions", "3", "--seed", "5"),
    ]


def test_a_probe_that_a_plan_does_not_select_is_eleven_b03(corpus: Path, plan_text: Path) -> None:
    with pytest.raises(Refusal, match="does not select PROBE-EX-unit;") as caught:
        planned(corpus, line(plan=str(plan_text))).task("PROBE-EX-unit")
    assert caught.value.code == ExitCode.PLAN_REFUSES


@pytest.mark.parametrize(
    ("old", "new", "code", "says"),
    [
        ("tier: campaign", "tier: regression", ExitCode.PLAN, "of the regression tier"),
        ("arms: [present, absent]", "arms: [absent]", ExitCode.PLAN, "no `present` arm"),
        ("seed: 0", "seed: many", ExitCode.PLAN, "seed 'many'"),
        ("docs/probes/0001", "../docs/probes/0001", ExitCode.PLAN, "leaves the corpus"),
        ("docs/probes/0001", "docs/probes/9001", ExitCode.MOVED, "cannot be read"),
    ],
)
def test_a_text_that_is_no_plan_of_this_line_is_refused(
    corpus: Path, plan_text: Path, old: str, new: str, code: ExitCode, says: str
) -> None:
    text = plan_text.read_text()
    assert old in text
    plan_text.write_text(text.replace(old, new))
    with pytest.raises(Refusal, match=says) as caught:
        planned(corpus, line(plan=str(plan_text)))
    assert caught.value.code == code


def test_a_corpus_that_moved_since_its_plan_is_four(corpus: Path, plan_text: Path) -> None:
    (probe,) = corpus.glob("docs/probes/0001*.md")
    probe.write_text(probe.read_text() + "An afterthought.\n")
    with pytest.raises(Refusal, match="plan again over this corpus") as caught:
        planned(corpus, line(plan=str(plan_text)))
    assert caught.value.code == ExitCode.MOVED


def test_a_declaration_that_cannot_be_read_is_eight_b11(corpus: Path, tmp_path: Path) -> None:
    declaration = corpus / ".headwater" / "probe.yml"
    text = declaration.read_text().replace("[present, absent]", "[present, absent, no-hook]")
    declaration.write_text(text)
    with pytest.raises(Refusal, match="`no-hook` arm and declares no delta") as caught:
        laid(corpus, tmp_path, line())
    assert caught.value.code == ExitCode.INSTRUMENT
    declaration.unlink()
    with pytest.raises(Refusal, match="cannot be read") as caught:
        laid(corpus, tmp_path, line())
    assert caught.value.code == ExitCode.INSTRUMENT
    assert not (tmp_path / "tree").exists()


def test_a_leak_that_nobody_keeps_is_nine_before_any_engine_p18(
    corpus: Path, tmp_path: Path
) -> None:
    with (corpus / "CLAUDE.md").open("a") as file:
        file.write("Sizes are kibibytes.\n")
    with pytest.raises(Refusal, match=r"CLAUDE\.md holds 'kibibytes'") as caught:
        laid(corpus, tmp_path, line())
    assert caught.value.code == ExitCode.NAMED
    laid(corpus, tmp_path, line(arm="absent"))


def test_a_leak_of_a_tool_is_nine_once_there_is_an_engine_e25(corpus: Path, tmp_path: Path) -> None:
    found = laid(corpus, tmp_path, line())
    refuse_leaking_tools([found], lambda _: {"list": ["Lists documents."]})
    with pytest.raises(Refusal, match=r"mcp:list holds 'unsigned'") as caught:
        refuse_leaking_tools([found], lambda _: {"list": ["Whether it is unsigned."]})
    assert caught.value.code == ExitCode.NAMED


def test_a_lines_own_plan_is_beside_the_batch_file_and_narrowed_by_nothing(tmp_path: Path) -> None:
    path = tmp_path / "batch.yaml"
    text = "corpus: c\nmodel: m\nlines: [{tier: campaign, arm: present, plan: p/one.txt}]\n"
    path.write_text(text)
    assert read_spec(path).lines[0].plan == str(tmp_path / "p" / "one.txt")
    path.write_text(text.replace("plan:", "category: discovery, plan:"))
    with pytest.raises(Refusal, match="line 1 has a plan") as caught:
        read_spec(path)
    assert caught.value.code == ExitCode.USAGE


@pytest.mark.parametrize("written", ["0", "010", "-1", "abc", "1.5", "0x2", "1_0", "1e1", "true"])
def test_repetitions_of_a_line_are_a_plain_number_p27(
    corpus: Path, tmp_path: Path, written: str
) -> None:
    path = tmp_path / "batch.yaml"
    path.write_text(
        f"corpus: c\nmodel: m\nlines: [{{tier: campaign, arm: present, repetitions: {written}}}]\n"
    )
    with pytest.raises(Refusal) as caught:
        planned(corpus, read_spec(path).lines[0])
    assert caught.value.code == ExitCode.USAGE


def test_what_a_session_is_told_is_the_task_section_word_for_word_d39(
    corpus: Path, plan_text: Path
) -> None:
    for spec in (line(), line(plan=str(plan_text))):
        for probe in planned(corpus, spec).probes:
            (document,) = (
                text
                for text in (path.read_text() for path in corpus.glob("docs/probes/*.md"))
                if f"id: {probe.id}\n" in text
            )
            body = "".join(text for _, text in section(document, "Task")).strip("\n")
            assert probe.task == body
            assert command_line(probe.task)[-1] == body


@pytest.mark.parametrize("kind", ["fault", "missing"])
def test_an_arm_is_never_described_by_a_declaration_that_cannot_be_read_f34(
    corpus: Path, tmp_path: Path, kind: str
) -> None:
    declaration = corpus / ".headwater" / "probe.yml"
    if kind == "missing":
        declaration.unlink()
    else:
        declaration.write_text(declaration.read_text() + "  documentation: {arms: no-hook}\n")
    with pytest.raises(Refusal) as caught:
        laid(corpus, tmp_path, line(arm="absent"))
    assert caught.value.code == ExitCode.INSTRUMENT
    assert not (tmp_path / "tree").exists()
