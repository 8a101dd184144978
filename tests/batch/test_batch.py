"""A batch whose driver was killed in the middle and run again, and what it leaves to be checked."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from proxy.egress import read
from recorder.batch.assembly import Expected, read_session
from recorder.batch.schedule import slots
from recorder.engine.client import open_engine
from recorder.engine.connect import docker_host
from recorder.ledger.chain import digest_of, ledger_schema
from recorder.ledger.entries import RunAbort
from recorder.ledger.journal import read_state
from recorder.refusal import Refusal
from recorder.session.leftovers import DRIVER_LABEL
from tests.recording.rig import EXAMPLES, Ran, eventually, recorder, running, things_of

pytestmark = pytest.mark.engine

SESSIONS = 6
UNITS = "L1-campaign-present-p3-r1"
CHECK = 'python3 -I "{baseline}/tools/check_reports.py" "{workspace}"'


@dataclass(frozen=True)
class Resumed:
    """A batch that was killed. ``finished``: what each session with an end held then, by file.

    ``contained`` are the sessions whose own container was still there.
    """

    spec: Path
    out: Path
    second: Ran
    killed: frozenset[str]
    contained: frozenset[str]
    finished: Mapping[str, Mapping[str, tuple[int, int, bytes]]]
    again: Ran


def batch_file(directory: Path, **changes: object) -> Path:
    written = yaml.safe_load((EXAMPLES / "batch.yaml").read_text())
    written["corpus"] = str(directory / "corpus")
    written["rehearse"] = str(EXAMPLES / "rehearsal.yaml")
    for line in written["lines"]:
        line["repetitions"] = 1
    shutil.copytree(EXAMPLES / "corpus", directory / "corpus")
    path = directory / "batch.yaml"
    written = {name: value for name, value in {**written, **changes}.items() if value is not None}
    path.write_text(yaml.safe_dump(written))
    return path


def contained_sessions(driver_process: int) -> frozenset[str]:
    """The sessions whose containers a driver that was killed left behind."""
    engine = open_engine(docker_host())
    try:
        return frozenset(
            labels["recorder.session"]
            for labels in (found["Labels"] for found in engine.containers(DRIVER_LABEL))
            if f":{driver_process}:" in labels[DRIVER_LABEL]
            and labels["recorder.role"] == "session"
        )
    finally:
        engine.close()


def ended_sessions(out: Path) -> frozenset[str]:
    """The sessions that have their end by the ledger, of which nothing is run again."""
    state = read_state(out)
    return frozenset(name for name in state.sessions if state.standing(name) == "recorded")


def held(directory: Path) -> Mapping[str, tuple[int, int, bytes]]:
    return {
        path.name: (path.stat().st_ino, path.stat().st_mtime_ns, path.read_bytes())
        for path in directory.iterdir()
        if path.is_file()
    }


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> Resumed:
    directory = tmp_path_factory.mktemp("batch")
    spec, out = batch_file(directory), directory / "out"
    sessions = out / "sessions"
    with running("batch", "run", spec, "--out", out) as process:
        eventually("a session began", lambda: any(sessions.glob("*/started")), 90)
        second = recorder("batch", "run", spec, "--out", out)

        def in_the_middle() -> bool:
            assert process.poll() is None, "the batch ended before it was killed"
            ended = {sessions / name for name in ended_sessions(out)}
            begun = {path.parent for path in sessions.glob("*/started")}
            unfinished = (
                directory
                for directory in begun - ended
                if b'"type":"result"' not in (directory / "raw.jsonl").read_bytes()
            )
            return len(ended) >= 2 and any(unfinished)

        eventually("two sessions ended and one runs", in_the_middle, 90)
        process.kill()
        process.wait()
    contained = contained_sessions(process.pid)
    finished = {name: held(sessions / name) for name in ended_sessions(out)}
    killed = frozenset(path.parent.name for path in sessions.glob("*/started")) - set(finished)
    again = recorder("batch", "run", spec, "--out", out)
    return Resumed(spec, out, second, killed, contained, finished, again)


def test_a_second_driver_of_the_same_batch_is_refused(resumed: Resumed) -> None:
    assert resumed.second.code == 20
    assert len(resumed.second.err.splitlines()) == 1
    assert str(resumed.out) in resumed.second.err


def test_a_batch_that_was_killed_goes_on_with_what_is_missing(resumed: Resumed) -> None:
    assert resumed.again.code == 0, resumed.again.err
    sessions = resumed.out / "sessions"
    ended = ended_sessions(resumed.out)
    assert ended <= {path.parent.name for path in sessions.glob("*/record.md")}
    assert len(ended) == SESSIONS
    ran = {line.split()[2] for line in resumed.again.err.splitlines() if len(line.split()) == 3}
    assert ran == ended - set(resumed.finished)
    assert resumed.killed <= ran


def test_what_had_its_end_is_not_touched_again(resumed: Resumed) -> None:
    assert resumed.finished
    for name, files in resumed.finished.items():
        assert held(resumed.out / "sessions" / name) == files


def test_what_the_killed_driver_had_begun_is_kept_aside(resumed: Resumed) -> None:
    assert resumed.contained & resumed.killed
    for name in resumed.killed:
        aside = resumed.out / "sessions" / f"{name}.attempt-1"
        assert (aside / "started").is_file()
        assert (aside / "raw.jsonl").is_file()
        assert (aside / "egress.jsonl").stat().st_size > 0
        if name in resumed.contained:
            assert (aside / "leftover-session.json").is_file()
        attempts = read_state(resumed.out).sessions[name]
        requests = attempts[0].egress.requests
        why = "unspent" if requests == 0 else "rehearsal"
        assert [attempt.start.why for attempt in attempts] == ["first", why]
        assert requests is not None
        assert attempts[0].egress.sha256 == digest_of((aside / "egress.jsonl").read_bytes())
        assert attempts[0].end is None


def test_a_batch_that_went_on_verifies_with_its_earlier_attempts(resumed: Resumed) -> None:
    ran = recorder("verify", resumed.out)
    assert ran.code == 0, ran.err
    for name in resumed.killed:
        assert f"earlier attempt: {name}.attempt-1 is kept; its files are held" in ran.out


def test_the_ledger_of_a_batch_that_went_on_is_of_its_schema(resumed: Resumed) -> None:
    validator = Draft202012Validator(ledger_schema())
    lines = [json.loads(line) for line in (resumed.out / "ledger.jsonl").read_bytes().splitlines()]
    for line in lines:
        assert list(validator.iter_errors(line)) == []
    kinds = [line["kind"] for line in lines]
    # The killed driver came to no end, and what its sessions' logs said stands before the next's.
    assert kinds.count("run:start") == 2
    assert kinds.count("run:end") == 1
    second = len(kinds) - 1 - kinds[::-1].index("run:start")
    told = {line["session"] for line in lines[:second] if line["kind"] == "session:egress"}
    assert told >= resumed.killed


def test_a_batch_that_is_whole_is_not_run_again(resumed: Resumed) -> None:
    before = {path.name: held(path) for path in (resumed.out / "sessions").iterdir()}
    ran = recorder("batch", "run", resumed.spec, "--out", resumed.out)
    assert ran.code == 0
    assert ran.err == ""
    assert {path.name: held(path) for path in (resumed.out / "sessions").iterdir()} == before


def tampered(session: Path, how: str) -> None:
    """Change one thing of a session's directory, as somebody would who can write it."""
    record, event, evidence = (session / n for n in ("record.md", "event.yaml", "evidence.json"))
    match how:
        case "link":
            aside = session.with_name("elsewhere")
            session.rename(aside)
            session.symlink_to(aside)
        case "event":
            event.write_text(event.read_text().replace('argument: "', 'argument: "x', 1))
        case "record" | "answer":
            old, new = {
                "record": ('argument: "', 'argument: "x'),
                "answer": ('answer: "kibibytes"', 'answer: "records"'),
            }[how]
            for path in (record, event):
                text = path.read_text()
                assert old in text
                path.write_text(text.replace(old, new, 1))
        case "stream":
            raw = session / "raw.jsonl"
            raw.write_bytes(b"".join(raw.read_bytes().splitlines(keepends=True)[:-1]))
        case _:
            said = json.loads(evidence.read_bytes())
            evidence.write_text(json.dumps({**said, how: "another"}))


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("link", "is a link"),
        ("event", "is not the event of"),
        ("record", "its calls are not those"),
        ("answer", "its answer is"),
        ("stream", "raw.jsonl"),
        ("session", "session is 'another'"),
        ("probe", "probe is 'another'"),
        ("tier", "tier is 'another'"),
        ("arm", "arm is 'another'"),
    ],
)
def test_a_session_that_is_not_what_was_recorded_is_not_gone_on_with(
    resumed: Resumed, tmp_path: Path, how: str, says: str
) -> None:
    session = tmp_path / UNITS
    shutil.copytree(resumed.out / "sessions" / UNITS, session)
    answers = ("bytes", "kibibytes", "records")
    expected = Expected(UNITS, "PROBE-EX-units", "campaign", "present", answers)
    assert read_session(session, expected) is not None
    tampered(session, how)
    with pytest.raises(Refusal, match=says) as refused:
        read_session(session, expected)
    assert refused.value.code == 19


@pytest.mark.parametrize("linked", ["assembled", "sessions", f"sessions/{UNITS}"])
def test_a_directory_of_a_batch_that_is_a_link_is_refused(
    resumed: Resumed, tmp_path: Path, linked: str
) -> None:
    path = resumed.out / linked
    path.rename(tmp_path / "aside")
    try:
        path.symlink_to(tmp_path / "aside")
        ran = recorder("batch", "run", resumed.spec, "--out", resumed.out)
    finally:
        path.unlink()
        (tmp_path / "aside").rename(path)
    assert ran.code == 19, ran.err
    assert f"{path}: is a link" in ran.err


def test_the_order_is_the_seed_s(resumed: Resumed) -> None:
    pinned = json.loads((resumed.out / "batch.json").read_bytes())
    lines = [("campaign", "present", 3, 1), ("campaign", "absent", 3, 1)]
    assert pinned["order"] == [slot.name for slot in slots(lines, pinned["seed"])]
    assert pinned["order"] != [slot.name for slot in slots(lines, pinned["seed"] + 1)]


def test_the_transcripts_pass_the_check_and_say_that_they_are_a_rehearsal(
    resumed: Resumed,
) -> None:
    transcripts = sorted((resumed.out / "assembled").glob("*.md"))
    assert [path.name for path in transcripts] == [
        "L1-campaign-present.md",
        "L2-campaign-absent.md",
    ]
    for path in (*transcripts, *(resumed.out / "sessions").glob("*/record.md")):
        text = path.read_text("utf-8")
        assert "This is a rehearsal and not a measurement" in text
        assert 'model: "rehearsal:' in text or 'model: "rehearsal' in text
    checked = recorder("check", *transcripts)
    assert checked.code == 0, checked.err
    assert len(checked.out.splitlines()) >= 2
    assert all("rehearsal" in line for line in checked.out.splitlines())
    assert "A rehearsal" in resumed.again.out


def test_a_member_that_moved_is_named(resumed: Resumed, tmp_path: Path) -> None:
    overview = resumed.spec.parent / "corpus" / "docs" / "overview.md"
    before = overview.read_bytes()
    try:
        overview.write_bytes(before + b"\nMoved.\n")
        ran = recorder("batch", "run", resumed.spec, "--out", resumed.out)
    finally:
        overview.write_bytes(before)
    assert ran.code == 4
    assert "tree of line 1 (campaign present) moved" in ran.err
    assert "manifest of line 2 (campaign absent) moved" in ran.err
    assert "selection" not in ran.err
    other = tmp_path / "batch.yaml"
    other.write_text(resumed.spec.read_text().replace("claude-sonnet-4-5", "claude-haiku-4-5"))
    ran = recorder("batch", "run", other, "--out", resumed.out)
    assert ran.code == 4
    assert [line for line in ran.err.splitlines() if "model moved" in line] == ran.err.splitlines()


def test_the_transform_makes_the_same_event_from_what_was_kept(
    resumed: Resumed, tmp_path: Path
) -> None:
    """The workspace is laid again as the arm's tree, with what the session produced in it."""
    corpus = resumed.spec.parent / "corpus"
    probes = {
        f"p{number}": probe
        for number, probe in enumerate(
            ("PROBE-EX-outside", "PROBE-EX-report", "PROBE-EX-units"), start=1
        )
    }
    for arm in ("present", "absent"):
        tree = tmp_path / arm
        laid = recorder("arm", "campaign", arm, "--corpus", corpus, "--out", tree)
        assert laid.code == 0, laid.err
        sealed = recorder("seal", tree, *probes.values(), "--corpus", corpus)
        assert sealed.code == 0, sealed.err
    for path in (resumed.out / "sessions").glob("*/event.yaml"):
        if ".attempt-" in path.parent.name:
            continue
        _, _, arm, position, _ = path.parent.name.split("-")
        evidence = json.loads((path.parent / "evidence.json").read_bytes())
        workspace = tmp_path / path.parent.name
        shutil.copytree(tmp_path / arm, workspace, symlinks=True)
        produced = [*evidence["workspace"]["added"], *evidence["workspace"]["changed"]]
        event = yaml.safe_load(path.read_text("utf-8"))[0]
        for artifact in event["produced"]:
            target = workspace / artifact["path"]
            target.parent.mkdir(parents=True, exist_ok=True)
            kept = path.parent / "produced" / artifact["result"].removeprefix("sha256:")
            target.write_bytes(kept.read_bytes())
        answers = {"p1": "signed, unsigned, unknown", "p3": "bytes, kibibytes, records"}
        given: tuple[str | Path, ...] = ("--corpus", corpus)
        if position in answers:
            given += ("--answers", answers[position])
        if event["produced"]:
            given += ("--check", CHECK, "--baseline", corpus)
        made = recorder(
            *("transform", "--probe", probes[position], "--session", path.parent.name),
            *("--workspace", workspace, *given),
            *(word for name in produced for word in ("--produced", name)),
            stdin=(path.parent / "raw.jsonl").read_bytes(),
        )
        assert made.code == 0, made.err
        assert made.out.encode() == path.read_bytes()


def failing(directory: Path, status: str, *exclude: str) -> Path:
    """A batch of the real harness whose provider answers every request with one error."""
    script = directory / "script.yaml"
    script.write_text(
        f"default: [{{failures: [{{status: {status}, times: always}}], content: [{{text: x}}]}}]"
    )
    line = {"tier": "regression", "arm": "present", "exclude": list(exclude)}
    return batch_file(directory, rehearse=str(script), lines=[line], parallel=1)


def test_an_account_without_credit_halts_a_batch_after_one_session_o22(tmp_path: Path) -> None:
    spec, out = failing(tmp_path, "credit"), tmp_path / "out"
    ran = recorder("batch", "run", spec, "--out", out, "--wait")
    assert ran.code == 15, ran.err
    assert "recorder: halted, credit (session L1-regression-present-" in ran.err
    assert len(list((out / "sessions").glob("*/raw.jsonl"))) == 1
    status = recorder("batch", "status", out, "--json")
    assert json.loads(status.out)["halts"] == ["credit"]
    assert json.loads(status.out)["code"] == 15


def test_a_session_that_fails_is_listed_and_not_run_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    spec = failing(tmp_path, '"400"', "PROBE-EX-outside", "PROBE-EX-report")
    ran = recorder("batch", "run", spec, "--out", out)
    assert ran.code == 17
    name = "L1-regression-present-p1-r1"
    assert f"session {name}: the harness exited 1" in ran.err
    assert f"1 of 1 sessions failed to record: {name}: " in ran.err
    assert "--retry failed" in ran.err
    assert name in ran.out
    assert not list((out / "assembled").glob("*"))
    before = held(out / "sessions" / name)
    again = recorder("batch", "run", spec, "--out", out)
    assert again.code == 17
    assert len(again.err.splitlines()) == 1
    assert held(out / "sessions" / name) == before


def test_files_of_a_session_that_the_ledger_does_not_know_are_refused(tmp_path: Path) -> None:
    line = {"tier": "regression", "arm": "present"}
    spec, out = batch_file(tmp_path, rehearse=None, lines=[line]), tmp_path / "out"
    begun = out / "sessions" / "L1-regression-present-p1-r1"
    begun.mkdir(parents=True)
    (begun / "started").write_text("by a driver that ended\n")
    # Refused before anything is started, so the key goes nowhere.
    ran = recorder(
        *("batch", "run", spec, "--out", out),
        environment={"ANTHROPIC_API_KEY": "sk-ant-api03-none"},
    )
    assert ran.code == 19
    assert f"{begun}: the ledger knows of no such session" in ran.err
    assert [path.name for path in begun.iterdir()] == ["started"]
    assert [path.name for path in begun.parent.iterdir()] == [begun.name]


def test_a_batch_told_to_end_kills_every_session_and_keeps_what_they_left(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text(
        "default: [{failures: [{stall: 600, times: always}], content: [{text: bytes}]}]"
    )
    lines = [
        {"tier": "campaign", "arm": arm, "exclude": ["PROBE-EX-outside", "PROBE-EX-report"]}
        for arm in ("present", "absent")
    ]
    lines = [{**line, "repetitions": 1} for line in lines]
    spec, out = batch_file(tmp_path, rehearse=str(script), lines=lines), tmp_path / "out"
    sessions = out / "sessions"
    engine = open_engine(docker_host())
    try:
        with running("batch", "run", spec, "--out", out) as process:
            eventually(
                "both sessions run",
                lambda: sum(b"init" in p.read_bytes() for p in sessions.glob("*/raw.jsonl")) == 2,
                60,
            )
            process.send_signal(signal.SIGTERM)
            assert process.stderr is not None
            while b"no more sessions start" not in process.stderr.readline():
                assert process.poll() is None
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=30)
        assert process.returncode == 128 + signal.SIGTERM
        assert said.decode().splitlines()[-1].startswith("recorder: interrupted by SIGTERM")
        assert things_of(engine, process.pid) == []
    finally:
        engine.close()
    for directory in sessions.iterdir():
        log = read((directory / "egress.jsonl").read_bytes().splitlines(keepends=True))
        assert log.faults == ()
        assert not (directory / "evidence.json").exists()
    assert len(list(sessions.iterdir())) == 2
    state = read_state(out)
    assert isinstance(state.stopped, RunAbort)
    assert state.stopped.signal == "SIGTERM"
    # Each had asked the provider once, and waited: what the logs say is in the ledger already.
    assert [attempt.requests for attempt in state.unended()] == [1, 1]
