"""The real harness with a credential in every form: it records, and none of it reaches it."""

from __future__ import annotations

import base64
import json
import os
import time
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path

import pytest

from recorder.engine.client import Engine
from recorder.images.build import image_tag
from recorder.refusal import ExitCode
from recorder.session.credentials import CLAUDE_FILE, Choice, holders, rehearsed, spellings
from recorder.session.harness import PLACEHOLDER_KEY, PLACEHOLDER_TOKEN
from recorder.session.sidecar import Credential
from tests.session.stage import Scene, Stage, Take, bash, text, turn
from tests.session.test_routing import CHECK, EVERY, settings, written

FORMS: tuple[Choice, ...] = ("api-key", "bearer", "claude")
GATHER = "python3 -I gather.py seen.bin && wc -c seen.bin"


def held_as(choice: Choice) -> Callable[[Credential], Credential]:
    return lambda credential: rehearsed(credential, choice, time.time())


class Watcher:
    """What could be looked at from the host while a session ran, as text."""

    def __init__(self) -> None:
        self.seen: dict[str, bytes] = {}

    def __call__(self, engine: Engine, container: str) -> None:
        labels = engine.inspect(container)["Config"]["Labels"]
        session = labels["recorder.session"]
        for each in engine.api.containers(filters={"label": f"recorder.session={session}"}):
            name = each["Names"][0]
            self.seen[f"inspect {name}"] = json.dumps(engine.inspect(each["Id"])).encode()
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            if int(path.parent.name) != os.getpid():
                for part in ("cmdline", "environ"):
                    self.seen[f"{path.parent}/{part}"] = _read(path.parent / part)
        for name in ("session", "proxy"):
            tag = image_tag(name)
            self.seen[f"image {tag}"] = json.dumps(
                [engine.api.inspect_image(tag), engine.api.history(tag)]
            ).encode()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


WATCHERS = {form: Watcher() for form in FORMS}


@pytest.fixture(scope="module")
def scenes(project: Path) -> Mapping[str, Scene]:
    gather = {"gather.py": (project / "tests/session/inside/gather.py").read_bytes()}
    end = turn(text("done"))
    turned = (written(".claude/settings.local.json", settings(EVERY)), *[turn(CHECK)] * 3, end)
    return {
        "turned": Scene(turns=turned, credential=held_as("claude")),
        **{
            form: Scene(
                turns=(turn(bash(GATHER)), end),
                files=gather,
                credential=held_as(form),
                watch=WATCHERS[form],
            )
            for form in FORMS
        },
        "copy": Scene(turns=(turn(bash("wc -c < $HOME/.credentials.json")), end),
                      credential=held_as("copy")),
        "told": Scene(turns=(turn(bash("base64 -w0 $HOME/.credentials.json")), end),
                      credential=held_as("copy")),
        "bound": Scene(turns=(turn(bash("true")),) * 6 + (end,), dollars=Decimal("0.01")),
    }  # fmt: skip


@pytest.fixture(params=FORMS)
def take(request: pytest.FixtureRequest, stage: Stage) -> Take:
    taken: Take = stage.take(request.param).whole()
    return taken


def test_a_session_records_with_a_placeholder_in_every_form(take: Take) -> None:
    # The provider looks its script up by the real credential, so it was in the requests.
    assert take.recorded.answer == "done"
    assert {line["rule"] for line in take.egress if line["kind"] == "decision"} <= {None, "path"}


def test_nothing_that_a_session_can_read_holds_the_credential(take: Take) -> None:
    assert holders(take.credential, take.directory) == ()
    event = take.recorded.event
    assert event is not None
    assert isinstance(event.produced, tuple)
    gathered = next(each for each in event.produced if each.path == "seen.bin")
    seen = (take.directory / "produced" / gathered.result.removeprefix("sha256:")).read_bytes()
    # The search would have found it: the placeholder is there.
    assert PLACEHOLDER_KEY.encode() in seen or PLACEHOLDER_TOKEN.encode() in seen
    assert len(seen) > 100_000


def test_nothing_that_the_host_can_look_at_holds_the_credential(stage: Stage) -> None:
    for form in FORMS:
        credential = stage.take(form).credential
        seen = WATCHERS[form].seen
        assert len([name for name in seen if name.startswith("inspect ")]) == 2
        for name, data in seen.items():
            assert not any(each in data for each in spellings(credential)), name


def test_the_file_of_a_sealed_session_is_the_hosts_with_placeholders(stage: Stage) -> None:
    take = stage.take("claude")
    (copy,) = (path for path in (take.directory / "produced").iterdir()
               if CLAUDE_FILE.encode() in path.read_bytes())  # fmt: skip
    told = copy.read_bytes().partition(b"== /session/config/.credentials.json\n")[2]
    members = json.loads(told[: told.index(b"\n== ")])["claudeAiOauth"]
    assert members["accessToken"] == PLACEHOLDER_TOKEN
    assert members["expiresAt"] > time.time() * 1000
    assert "user:inference" in members["scopes"]


def test_an_oauth_session_says_what_one_says_without_a_way_to_refresh(stage: Stage) -> None:
    take = stage.take("claude")
    assert take.lines[0]["apiKeySource"] == "none"
    asked = [(line["asked"]["path"], line["status"]) for line in take.egress
             if line["kind"] == "decision" and line["decision"] == "refused"]  # fmt: skip
    assert asked == [("/api/oauth/profile", 404)]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("api-key", "No file of the host was in it. The environment"),
        ("claude", "a `.credentials.json` with placeholders"),
        ("copy", "One file of the host was in it: a copy of its credential"),
    ],
)
def test_the_record_says_what_of_the_host_was_in_the_session(
    stage: Stage, name: str, says: str
) -> None:
    assert says in (stage.take(name).whole().directory / "record.md").read_text()


def test_no_setting_of_the_workspace_turns_an_oauth_session(stage: Stage) -> None:
    take = stage.take("turned").whole()
    assert any("turned=yes" in result for result in take.results)
    assert take.recorded.answer == "done"
    assert {line["rule"] for line in take.egress if line["kind"] == "decision"} <= {None, "path"}


def test_a_copy_records_and_nothing_keeps_it(stage: Stage) -> None:
    take = stage.take("copy").whole()
    assert int(take.results[0]) > 100
    assert holders(take.credential, take.directory) == ()


def test_a_copy_that_a_session_tells_refuses_it_and_names_where_it_stands(stage: Stage) -> None:
    refusal = stage.take("told").recorded.refusal
    assert refusal is not None
    assert refusal.code == ExitCode.CONFINEMENT
    assert "raw.jsonl" in refusal.reasons[0]
    assert stage.take("told").credential not in " ".join(refusal.reasons)


def test_a_session_over_its_dollars_is_refused_and_its_record_says_so(stage: Stage) -> None:
    take = stage.take("bound")
    refused = [line for line in take.egress if line.get("rule") == "bound-dollars"]
    assert refused
    assert {line["status"] for line in refused} == {403}
    assert take.egress[0]["bounds"]["dollars"] == "0.01"
    used = take.egress[-1]["used"]
    assert Decimal(used["dollars"]) >= Decimal("0.01")
    refusal = take.recorded.refusal
    assert refusal is not None
    assert refusal.code == ExitCode.CAP
    assert "0.01" in refusal.reasons[0]
    assert f"it spent {used['dollars']} dollars" in refusal.reasons[0]
    bound = take.recorded.evidence.egress.bound
    assert bound is not None
    assert (bound.rule, bound.limit, bound.refused) == ("bound-dollars", "0.01", len(refused))


def test_the_search_finds_a_secret_at_every_offset_of_base64() -> None:
    secret = "rehearsal-SCENE~session-0123"
    for before in range(6):
        for after in range(4):
            coded = base64.b64encode(b"a" * before + secret.encode() + b"b" * after)
            assert any(each in coded for each in spellings(secret)[1:])
    assert all(each not in b"nothing of it" for each in spellings(secret))
