"""What a user can get wrong: each its own code and one line, before any engine is asked.

The engine's address leads nowhere in all of these, so that a verb which asked it would say so.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recorder.batch import batch
from recorder.batch.batch import image_id
from recorder.cli import app
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.refusal import Refusal
from tests.recording.rig import DEAD_ENGINE, EXAMPLES, PROBE, Ran, recorder
from tests.stream.streams import init, result

CORPUS = EXAMPLES / "corpus"
SCRIPT = EXAMPLES / "rehearsal.yaml"

Run = Callable[..., Ran]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """The command in this process: an exception that it does not turn into a line fails a test."""
    monkeypatch.setenv("DOCKER_HOST", DEAD_ENGINE)
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    # Whoever runs the tests may be logged in.
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/nonexistent")
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    handlers = [signal.getsignal(number) for number in numbers]

    def run_in_process(*arguments: str | Path, stdin: bytes = b"") -> Ran:
        capfd.readouterr()
        monkeypatch.setattr(sys, "argv", ["recorder", *(str(a) for a in arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = app.main()
        said = capfd.readouterr()
        assert "Traceback" not in said.err
        return Ran(code, said.out, said.err)

    yield run_in_process
    for number, handler in zip(numbers, handlers, strict=True):
        signal.signal(number, handler)


def refused(ran: Ran, code: int, *says: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    (line,) = ran.err.splitlines()
    assert line.startswith("recorder: ")
    for words in says:
        assert words in line


def record(out: Path, **changes: object) -> tuple[str | Path, ...]:
    options: dict[str, object] = {
        "corpus": CORPUS,
        "probe": PROBE,
        "session": "one",
        "out": out,
        "rehearse": SCRIPT,
        **changes,
    }
    words: list[str | Path] = ["record"]
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", str(value)]
    return tuple(words)


@pytest.fixture
def out() -> Iterator[Path]:
    """Outside of the home directory, wherever the tests' own directories lie."""
    directory = Path("/var/tmp") / f"recorder-refusals-{os.getpid()}"
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def test_a_probe_that_no_plan_selects(run: Run, out: Path) -> None:
    refused(run(*record(out, probe="PROBE-EX-none")), 11, "PROBE-EX-none", "it selects")
    assert not out.exists()


def test_a_corpus_that_is_not_there(run: Run, out: Path) -> None:
    refused(run(*record(out, corpus="/nonexistent")), 5, "/nonexistent", "no directory")


def test_a_corpus_without_a_declaration_c07(run: Run, out: Path, tmp_path: Path) -> None:
    refused(run(*record(out, corpus=tmp_path)), 8, "probe.yml", "cannot be read")


def test_a_probe_without_a_task(run: Run, out: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    shutil.copytree(CORPUS, corpus)
    (document,) = corpus.glob("docs/probes/0001*.md")
    document.write_text(document.read_text().replace("## Task", "## Errand"))
    refused(run(*record(out, corpus=corpus)), 11, document.name)


@pytest.mark.parametrize("verb", ["record", "batch"])
def test_an_output_directory_inside_the_corpus(run: Run, verb: str, tmp_path: Path) -> None:
    corpus = tmp_path / "examples" / "corpus"
    shutil.copytree(EXAMPLES, corpus.parent)
    inside = corpus / "docs" / "out"
    arguments = (
        record(inside, corpus=corpus)
        if verb == "record"
        else ("batch", "run", corpus.parent / "batch.yaml", "--out", inside)
    )
    refused(run(*arguments), 6, str(inside), "inside the corpus")
    assert not inside.exists()


@pytest.mark.parametrize("verb", ["record", "batch"])
def test_an_output_directory_under_the_home(
    run: Run, verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    under = tmp_path / "out"
    arguments = (
        record(under)
        if verb == "record"
        else ("batch", "run", EXAMPLES / "batch.yaml", "--out", under)
    )
    refused(run(*arguments), 6, str(under), "home directory")
    assert not under.exists()


def test_an_output_directory_that_is_a_file(run: Run, out: Path) -> None:
    out.mkdir()
    (out / "file").write_text("")
    ran = run("batch", "run", EXAMPLES / "batch.yaml", "--out", out / "file")
    refused(ran, 2, str(out / "file"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"corpus: [", ":2:1: "),
        (b"corpus: corpus\nmodel: m\nlines: [{tier: campaign, arm: present, more: 1}]\n", "more"),
        (b"corpus: corpus\nmodel: m\nlines: []\n", "lines is empty"),
        (b"corpus: corpus\nmodel: m\nlines: [{tier: campaign}]\n", "`arm`"),
        (b"corpus: corpus\nlines: [{tier: campaign, arm: present}]\n", "`model`"),
        (b"corpus: c\nmodel: m\nparallel: 99\nlines: [{tier: t, arm: a}]\n", "parallel is 99"),
        (b"corpus: \xff\n", "is not UTF-8 (byte 9)"),
        (b"[" * 5000, "nesting depth"),
        (b"", "batch.yaml"),
        (b"corpus: c\nmodel: 2020-99-99\n", ":1:1: the batch names no `lines`"),
        (
            b"corpus: c\nmodel: m\nlines: [a b c]\nseed: " + b"9" * 5000 + b"\n",
            ":4:1: seed is '999",
        ),
        (
            b"corpus: c\nlines: [a b c]\nmodel: m\nmodel: n\n",
            ":4:1: the key 'model' stands twice",
        ),
        (b"corpus: c\nmodel: m\nlines: [{tier: t, arm: a, arm: b}]\n", ":3:27: the key 'arm'"),
        (b"corpus: c\nmodel: m\nlines: [{tier: t, arm: 7}]\n", ":3:19: arm of line 1 is 7"),
    ],
)
def test_a_batch_file_that_cannot_be_read(
    run: Run, out: Path, tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "batch.yaml"
    path.write_bytes(content)
    refused(run("batch", "run", path, "--out", out), 2, str(path), says)
    assert not out.exists()


def test_a_batch_file_that_is_not_there(run: Run, out: Path, tmp_path: Path) -> None:
    refused(run("batch", "run", tmp_path / "none", "--out", out), 2, str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"PROBE: [", ":2:1: not YAML"),
        (b"PROBE: [{content: [{text: a}], more: 1}]", ":1:32: a turn has no key 'more'"),
        (b"\xff\xfe\x00", "is not UTF-8"),
        (b"", "empty"),
    ],
)
def test_a_rehearsal_script_that_cannot_be_read(
    run: Run, out: Path, tmp_path: Path, content: bytes, says: str
) -> None:
    path = tmp_path / "script.yaml"
    path.write_bytes(content + b"\n" if content.endswith(b"[") else content)
    refused(run(*record(out, rehearse=path)), 2, str(path), says)
    refused(run(*record(out, rehearse=tmp_path / "none")), 2, str(tmp_path / "none"))
    assert not out.exists()


def test_a_tier_or_an_arm_that_is_not_there(run: Run, out: Path) -> None:
    refused(run(*record(out, tier="none")), 2, "--tier none", "regression")
    refused(run(*record(out, arm="none")), 5, "--arm none", "it runs present")


def test_no_credential(run: Run, out: Path) -> None:
    refused(run(*record(out, rehearse=None)), 3, "no credential", "ANTHROPIC_API_KEY")


@pytest.mark.parametrize("choice", ["api-key", "bearer", "claude", "copy"])
@pytest.mark.parametrize("verb", ["record", "batch"])
def test_a_chosen_credential_that_the_host_does_not_have(
    run: Run, out: Path, tmp_path: Path, verb: str, choice: str
) -> None:
    refused(run(*unrehearsed(verb, out, tmp_path, "--credentials", choice)), 3, choice, "none")


@pytest.mark.parametrize("choice", ["claude", "copy", None])
@pytest.mark.parametrize("verb", ["record", "batch"])
def test_a_credential_that_expires_before_a_session_could_end(
    run: Run,
    out: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    choice: str | None,
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path))
    told = {"accessToken": "sk-ant-oat01-secret", "expiresAt": int((time.time() + 60) * 1000)}
    (tmp_path / ".credentials.json").write_text(json.dumps({"claudeAiOauth": told}))
    chosen = () if choice is None else ("--credentials", choice)
    ran = run(*unrehearsed(verb, out, tmp_path, *chosen))
    refused(ran, 12, "expires at", "UTC")
    assert "secret" not in ran.err


def unrehearsed(verb: str, out: Path, directory: Path, *more: str) -> tuple[str | Path, ...]:
    """The verb as one would spend with it."""
    if verb == "record":
        return (*record(out, rehearse=None), *more)
    spec = directory / "batch.yaml"
    spec.write_text(
        f"corpus: {CORPUS}\nmodel: claude-sonnet-4-5\nlines: [{{tier: campaign, arm: present}}]\n"
    )
    return ("batch", "run", spec, "--out", out, *more)


@pytest.mark.parametrize(
    ("member", "says"),
    [
        ("credentials: token", "credentials"),
        ("session_dollars: 0", "more than 0"),
        ("session_dollars: .nan", "session_dollars is '.nan'"),
        ("session_dollars: .inf", "session_dollars is '.inf'"),
        ("timeout_seconds: .nan", "timeout_seconds is '.nan'"),
        ("timeout_seconds: .inf", "timeout_seconds is '.inf'"),
        ("session_dollars: all", "session_dollars"),
    ],
)
def test_a_batch_file_with_a_credential_or_a_bound_that_is_none(
    run: Run, out: Path, tmp_path: Path, member: str, says: str
) -> None:
    words = unrehearsed("batch", out, tmp_path)
    spec = tmp_path / "batch.yaml"
    spec.write_text(spec.read_text() + member + "\n")
    refused(run(*words), 2, str(spec), says)


@pytest.mark.parametrize("verb", ["record", "batch"])
def test_a_model_that_the_policy_lets_nobody_ask(
    run: Run, out: Path, tmp_path: Path, verb: str
) -> None:
    words = record(out, model="gpt-5")
    if verb == "batch":
        words = unrehearsed("batch", out, tmp_path, "--rehearse", str(SCRIPT))
        spec = tmp_path / "batch.yaml"
        spec.write_text(spec.read_text().replace("claude-sonnet-4-5", "gpt-5"))
    refused(run(*words), 2, "model 'gpt-5'", "claude-*")
    assert not out.exists()
    refused(run(*record(out, model="sonnet")), 3, DEAD_ENGINE)


@pytest.mark.parametrize("verb", ["record", "batch"])
def test_a_rehearsal_script_without_an_answer_to_a_probe(
    run: Run, out: Path, tmp_path: Path, verb: str
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("PROBE-EX-other: [{content: [{text: a}]}]\n")
    words = record(out, rehearse=script)
    if verb == "batch":
        words = unrehearsed("batch", out, tmp_path, "--rehearse", str(script))
    refused(run(*words), 2, str(script), PROBE)
    assert not list(out.glob("sessions/*"))


@pytest.mark.parametrize("option", ["timeout", "session-dollars"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_bound_of_a_session_that_is_no_number(
    run: Run, out: Path, option: str, value: str
) -> None:
    ran = run(*record(out), f"--{option}", value)
    assert ran.code == 2
    assert f"--{option}" in ran.err
    assert not out.exists()


@pytest.mark.parametrize("name", ["", ".hidden", "-dash", "a/b", "é", "a b", "a~b", "n" * 129])
def test_a_name_that_no_session_can_have(run: Run, out: Path, name: str) -> None:
    refused(run(*record(out, session=name)), 2, "--session")


def test_a_session_s_directory_that_is_used(run: Run, out: Path) -> None:
    kept = out / "sessions" / "one" / "raw.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text("kept")
    refused(run(*record(out)), 2, str(kept.parent), "holds a session already")
    assert kept.read_text() == "kept"


@pytest.mark.parametrize("verb", ["record", "batch", "images"])
def test_an_engine_that_is_down(run: Run, out: Path, verb: str) -> None:
    arguments = {
        "record": record(out),
        "batch": ("batch", "run", EXAMPLES / "batch.yaml", "--out", out),
        "images": ("images", "list"),
    }[verb]
    refused(run(*arguments), 3, DEAD_ENGINE)
    assert not list(out.glob("sessions/*"))


@pytest.mark.engine
def test_an_image_that_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "image_tag", lambda name: f"recorder-{name}:none")
    engine = open_engine(docker_host())
    try:
        with pytest.raises(Refusal) as met:
            image_id(engine, "session")
    finally:
        engine.close()
    assert met.value.code == 3
    assert met.value.reasons == (
        "recorder-session:none: is not built: run `recorder images build`",
    )


def test_a_stream_that_nothing_can_be_derived_from(run: Run, tmp_path: Path) -> None:
    missing, broken = tmp_path / "none", tmp_path / "broken"
    broken.write_bytes(b"no stream\n")
    for words in (("provider",), ("answer", "--answers", "a"), ("outside",)):
        refused(run("derive", words[0], missing, *words[1:]), 2, str(missing))
        refused(run("derive", words[0], tmp_path, *words[1:]), 2, str(tmp_path))
        refused(run("derive", words[0], broken, *words[1:]), 13, str(broken))


def test_a_stream_that_is_no_observation_has_no_event(run: Run, tmp_path: Path) -> None:
    names = ("transform", "--probe", "P", "--session", "s")
    refused(run(*names, stdin=b""), 13, "is empty")
    refused(run(*names, stdin=init() + result()[:-5]), 13, "is cut")
    refused(run(*names, stdin=b"\xff\n"), 13, "is not UTF-8")
    refused(run(*names, "--produced", "x", stdin=init()), 2, "--workspace")
    refused(run(*names, "--workspace", tmp_path / "none", stdin=init()), 2, "not a workspace")


def test_check_passes_what_was_recorded_and_refuses_prose(run: Run, shared: Path) -> None:
    conformance = shared / "conformance" / "headwater"
    runs = sorted((conformance / "probe-runs").glob("*.md"))
    assert runs
    ran = run("check", *runs)
    assert ran.code == 0, ran.err
    assert len(ran.out.splitlines()) == len(runs)
    prose = conformance / "fixtures" / "transcript-with-prose.md"
    ran = run("check", prose, runs[0])
    assert ran.code == 19
    assert str(prose) in ran.err
    assert len(ran.out.splitlines()) == 1


def test_check_names_a_file_that_is_no_transcript(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.md"
    broken.write_bytes(b"\xff")
    refused(run("check", tmp_path / "none"), 2, str(tmp_path / "none"))
    refused(run("check", broken), 2, str(broken), "UTF-8")


def test_the_command_itself_as_a_process(tmp_path: Path) -> None:
    ended = recorder("derive", "provider", tmp_path / "none")
    assert ended.code == 2
    assert ended.err == f"recorder: {tmp_path}/none: No such file or directory: give a raw stream\n"
    assert recorder("--version").out.startswith("recorder ")
    assert recorder("no-such-verb").code == 2
