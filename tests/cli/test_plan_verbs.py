"""The verbs ``plan``, ``arm`` and ``seal`` as commands: what they print, and their codes."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.cli import app
from recorder.plan.composition import compose_plan
from recorder.plan.reading import MEMBERS, read_plan
from recorder.plan.rendering import render_plan

PROBES = ("PROBE-EX-units", "PROBE-EX-report", "PROBE-EX-outside")


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str


Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    monkeypatch.setattr(app, "interrupt_on_signals", lambda: None)

    def run_in_process(*arguments: str | Path) -> Ran:
        capsys.readouterr()
        monkeypatch.setattr(sys, "argv", ["recorder", *map(str, arguments)])
        code = app.main()
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return Ran(int(code), said.out, said.err)

    return run_in_process


@pytest.fixture
def corpus(project: Path, tmp_path: Path) -> Path:
    shutil.copytree(project / "examples" / "corpus", tmp_path / "corpus")
    return tmp_path / "corpus"


@pytest.fixture
def present(run: Run, corpus: Path, tmp_path: Path) -> Path:
    tree = tmp_path / "present"
    assert run("arm", "campaign", "present", "--corpus", corpus, "--out", tree).code == 0
    assert run("seal", tree, *PROBES, "--corpus", corpus).code == 0
    return tree


def test_the_identity_alone_is_six_lines_of_the_plan_a15(run: Run, corpus: Path) -> None:
    ended = run("plan", "--corpus", corpus, "--tier", "campaign", "--identity-only")
    assert ended.code == 0
    assert [line.partition(": ")[0] for line in ended.out.splitlines()] == list(MEMBERS)
    members = read_plan(render_plan(compose_plan(corpus, tier="campaign")), "plan").members
    assert ended.out == "".join(f"{key}: {value}\n" for key, value in members.items())


def test_the_identity_of_a_plan_that_refuses_is_not_printed(run: Run, corpus: Path) -> None:
    ended = run("plan", "--corpus", corpus, "--tier", "documentation", "--identity-only")
    assert (ended.code, ended.out) == (11, "")
    assert "documentation" in ended.err


@pytest.mark.parametrize("written", ["0", "010", "-1", "abc", "1.5", "+1", "1_0"])
def test_repetitions_are_a_plain_number_p27(run: Run, corpus: Path, written: str) -> None:
    ended = run("plan", "--corpus", corpus, "--tier", "campaign", f"--repetitions={written}")
    assert (ended.code, ended.out) == (2, "")


def test_the_listings_need_no_workspace_f04_d20_d22_d28(run: Run, corpus: Path) -> None:
    listed = run("seal", "--instrument", "--corpus", corpus)
    assert (listed.code, listed.out) == (0, "docs/probes\n.headwater/probe.yml\n")
    for listing in (["--folds"], ["--keys", PROBES[0]], ["--named", PROBES[0]]):
        ended = run("seal", *listing, "--corpus", corpus)
        assert (ended.code, ended.out) == (0, "")


@pytest.mark.parametrize("listing", ["--instrument", "--folds", "--keys", "--named"])
@pytest.mark.parametrize(
    "bad",
    [
        pytest.param("instrument: [../outside]", id="F08"),
        pytest.param("folds: [../outside]", id="D31"),
        pytest.param("answer_keys: {PROBE-EX-units: [../outside]}", id="D35"),
        pytest.param("nothing: known", id="D32"),
        pytest.param("instrument:\n\t- a", id="no-YAML"),
    ],
)
def test_a_declaration_that_cannot_be_read_lists_nothing(
    run: Run, corpus: Path, listing: str, bad: str
) -> None:
    declaration = corpus / ".headwater" / "probe.yml"
    kept = declaration.read_text().partition("\ntiers:")[2]
    declaration.write_text(f"{bad}\ntiers:{kept}")
    probe = [PROBES[0]] if listing in ("--keys", "--named") else []
    ended = run("seal", listing, *probe, "--corpus", corpus)
    assert (ended.code, ended.out) == (8, "")
    assert "probe.yml:" in ended.err


def test_an_arms_difference_is_all_that_is_printed_f17_f18(
    run: Run, corpus: Path, present: Path
) -> None:
    for tree in ([], ["--tree", present]):
        ended = run("arm", "campaign", "absent", "--corpus", corpus, "--diff", *tree)
        assert ended.code == 0
        assert ended.out == "- .claude\n- .headwater\n- .mcp.json\n- CLAUDE.md\n- tools\n"


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["arm", "campaign"], id="F12"),
        pytest.param(["arm", "campaign", "absent", "--corpus", "{corpus}"], id="no-out"),
        pytest.param(
            ["arm", "campaign", "absent", "--corpus", "{corpus}", "--diff", "--out", "x"], id="both"
        ),
        pytest.param(["seal", "--corpus", "{corpus}"], id="D38-nothing"),
        pytest.param(["seal", "/tmp", "--corpus", "{corpus}"], id="D38-no-probe"),
        pytest.param(["seal", "--folds", "--instrument", "--corpus", "{corpus}"], id="two"),
        pytest.param(["seal", "/tmp", "P", "--folds", "--corpus", "{corpus}"], id="a-tree-too"),
        pytest.param(["seal", "/nowhere", PROBES[0], "--corpus", "{corpus}"], id="D38-missing"),
        pytest.param(
            ["seal", "/nowhere", PROBES[0], "--leak", "--corpus", "{corpus}"], id="leak-missing"
        ),
        pytest.param(
            ["seal", "/tmp", PROBES[0], "--config", "/tmp", "--corpus", "{corpus}"], id="config"
        ),
    ],
)
def test_usage_errors_are_two(run: Run, corpus: Path, arguments: list[str]) -> None:
    ended = run(*(word.replace("{corpus}", str(corpus)) for word in arguments))
    assert (ended.code, ended.out) == (2, "")
    assert ended.err


def test_a_tier_or_arm_that_is_not_declared_is_two_and_writes_nothing_f10_f11_f28_f29(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    out = tmp_path / "arm"
    for tier, arm in (
        ("regression", "absent"),
        ("weekly", "present"),
        ("campaign", "no-docs"),
        ("campaign", "no-hook"),
    ):
        ended = run("arm", tier, arm, "--corpus", corpus, "--out", out)
        assert (ended.code, ended.out) == (2, "")
        assert "tier" in ended.err or "arm" in ended.err
    assert not out.exists()


def test_a_dry_run_of_the_seal_changes_nothing(run: Run, corpus: Path, tmp_path: Path) -> None:
    tree = tmp_path / "copy"
    shutil.copytree(corpus, tree)
    said = run("seal", tree, *PROBES, "--corpus", corpus, "--dry-run")
    assert (tree / "docs" / "probes").is_dir()
    done = run("seal", tree, *PROBES, "--corpus", corpus)
    assert said.out == done.out
    assert not (tree / "docs" / "probes").exists()
    again = run("seal", tree, *PROBES, "--corpus", corpus)
    assert (again.code, again.out) == (0, "seal: nothing to do\n")


def leak(run: Run, tree: Path, corpus: Path, *rest: str | Path) -> Ran:
    return run("seal", "--leak", tree, *PROBES[:2], "--corpus", corpus, *rest)


def test_a_leak_is_listed_and_refused_e01_e02_e24(run: Run, corpus: Path, present: Path) -> None:
    (present / ".mcp.json").unlink()
    ended = leak(run, present, corpus)
    assert (ended.code, ended.out) == (0, "undeclared PROBE-EX-report\n")
    (present / "CLAUDE.md").write_text("Sizes are kibibytes.\n")
    ended = leak(run, present, corpus)
    assert ended.code == 9
    assert ended.out == ("leak PROBE-EX-units CLAUDE.md kibibytes\nundeclared PROBE-EX-report\n")
    assert "CLAUDE.md" in ended.err
    declaration = corpus / ".headwater" / "probe.yml"
    declaration.write_text(
        declaration.read_text().replace("leaks_kept: []", "leaks_kept: [PROBE-EX-units]")
    )
    ended = leak(run, present, corpus)
    assert ended.code == 0
    assert ended.out.startswith("kept PROBE-EX-units CLAUDE.md kibibytes\n")


def test_a_server_that_nothing_can_ask_is_three_e29(
    run: Run, corpus: Path, present: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    ended = leak(run, present, corpus)
    assert ended.code == 3
    assert len(ended.err.splitlines()) == 1


def test_a_configuration_directory_leaks_too_e26_e27(
    run: Run, corpus: Path, present: Path, tmp_path: Path
) -> None:
    (present / ".mcp.json").unlink()
    config = tmp_path / "config"
    (config / "skills" / "planted").mkdir(parents=True)
    assert leak(run, present, corpus, "--config", config).code == 0
    (config / "CLAUDE.md").write_text("kibibytes")
    (config / "skills" / "planted" / "SKILL.md").write_text("---\ndescription: SLU-DEC-0003\n---\n")
    ended = leak(run, present, corpus, "--config", config)
    assert ended.code == 9
    assert "leak PROBE-EX-units config:CLAUDE.md kibibytes\n" in ended.out
    assert "leak PROBE-EX-units config:skills/planted/SKILL.md SLU-DEC-0003\n" in ended.out


def follow(run: Run, corpus: Path, tmp_path: Path, *options: str | Path) -> Ran:
    out = tmp_path / "out"
    return run(
        *("record", "--corpus", corpus, "--probe", PROBES[0], "--session", "s", "--out", out),
        *options,
    )


@pytest.mark.parametrize(
    ("body", "code", "says"),
    [
        pytest.param(
            "printf '## This run does not start\\n\\nToo many.\\n'",
            11,
            "refuses this run",
            id="B01",
        ),
        pytest.param("echo 'no lock here' >&2; exit 3", 5, "no lock here", id="B04"),
        pytest.param(
            "sed s/PROBE-EX-units/PROBE-EX-other/ {plan}", 11, "does not select", id="B03"
        ),
    ],
)
def test_a_plan_command_refuses_before_any_engine(
    run: Run,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    body: str,
    code: int,
    says: str,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    plan = tmp_path / "plan.txt"
    plan.write_text(render_plan(compose_plan(corpus, tier="campaign")))
    engine = tmp_path / "engine.sh"
    engine.write_text("#!/bin/sh\n" + body.replace("{plan}", str(plan)) + "\n")
    engine.chmod(0o755)
    ended = follow(
        run, corpus, tmp_path, "--tier", "campaign", "--plan-command", f"{engine} probe plan"
    )
    assert (ended.code, ended.out) == (code, "")
    assert says in ended.err
    assert not (tmp_path / "out").exists()


def test_a_plan_and_what_would_make_another_are_not_both_given(
    run: Run, corpus: Path, tmp_path: Path
) -> None:
    for options in (["--lock", "sha256:x"], ["--seed", "3"], ["--plan-command", "x"]):
        ended = follow(run, corpus, tmp_path, "--plan", tmp_path / "plan.txt", *options)
        assert (ended.code, ended.out) == (2, "")
        assert "--plan" in ended.err


def test_a_campaign_that_an_arm_cannot_satisfy_is_eleven_b02(
    run: Run, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/engine.sock")
    (corpus / "docs" / "probes" / "0009-a-tool-it-has-to-open.md").write_text(
        "---\nid: PROBE-EX-tool\nprobe_category: discovery\nexpectation: opened\n"
        "relations:\n  examines: [tools/documents_server.py]\n---\n\n## Task\n\nOpen it.\n"
    )
    ended = follow(run, corpus, tmp_path, "--tier", "campaign")
    assert (ended.code, ended.out) == (11, "")
    assert "`absent` arm" in ended.err
