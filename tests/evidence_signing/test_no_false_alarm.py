"""A batch that nobody touched verifies, whatever it was made with and however it ended."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from recorder.evidence.verification import verify_batch
from recorder.report.reading import read_batch
from tests.batch.test_batch import batch_file
from tests.recording.rig import recorder

pytestmark = pytest.mark.engine

UNITS = {"tier": "campaign", "arm": "present", "repetitions": 1, "category": "navigability"}
REPORT = {"tier": "campaign", "arm": "present", "repetitions": 1, "category": "sufficiency"}
ABSENT = {**UNITS, "arm": "absent"}

# Changes a text that is there, adds one, takes one away, and makes one that is no text.
CHANGING = {
    "default": [
        {
            "content": [
                {
                    "tool_use": {
                        "name": "Bash",
                        "input": {
                            "command": "sed -i 's/the/THE/' docs/overview.md; rm docs/glossary.md;"
                            " echo new >docs/new.md; head -c 99 /dev/zero >docs/bytes"
                        },
                    }
                }
            ]
        },
        {"content": [{"text": "Done."}]},
    ]
}
# Goes on for longer than any deadline of these batches.
SLOW = {
    "default": [
        {"content": [{"tool_use": {"name": "Bash", "input": {"command": "tail -f /dev/null"}}}]},
        {"content": [{"text": "Done."}]},
    ]
}


@dataclass(frozen=True)
class Made:
    """How a batch is made. ``changes`` are of its file, ``codes`` what its runs end with.

    ``corpus`` changes the corpus's files before. Each of ``runs`` is a run's own options.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    lines: Sequence[Mapping[str, Any]] = (UNITS,)
    script: Mapping[str, Any] | None = None
    corpus: Callable[[Path], None] = lambda _: None
    runs: Sequence[Sequence[str]] = ((),)
    codes: Sequence[int] = (0,)
    signed: bool = False


def without_a_check(corpus: Path) -> None:
    declaration = corpus / ".headwater" / "probe.yml"
    text = declaration.read_text()
    start = text.index("check: [")
    declaration.write_text(text[:start] + text[text.index("\n", start) + 1 :])


def with_odd_names(corpus: Path) -> None:
    (corpus / "docs" / "a name with spaces, ünï\N{SNOWMAN}.md").write_text("# Odd\n")
    (corpus / "docs" / "empty.md").write_text("")
    (corpus / "docs" / "link.md").symlink_to("overview.md")


FAST = (
    Made("texts changed, signed", lines=(UNITS,), script=CHANGING, signed=True),
    Made(
        "two arms at once, odd names",
        {"parallel": 2, "seed": 7},
        (UNITS, ABSENT),
        corpus=with_odd_names,
    ),
    Made("capped by its turns", {"max_turns": 1}),
)
SLOWER = (
    Made("one by one", {"parallel": 1}, (UNITS, ABSENT)),
    Made("twice each", {"parallel": 3}, ({**UNITS, "repetitions": 2},)),
    Made("another tier", lines=({"tier": "regression", "arm": "present"},)),
    Made("two tiers", lines=(UNITS, {**UNITS, "tier": "regression"})),
    Made("probes left out", lines=({**UNITS, "category": None, "exclude": ["PROBE-EX-report"]},)),
    Made("artifacts and findings", lines=(REPORT, {**REPORT, "arm": "absent"}), signed=True),
    Made("no check", lines=(REPORT,), corpus=without_a_check),
    Made("another model", {"model": "haiku"}),
    Made("a bearer's token", {"credentials": "bearer"}),
    Made("a harness's own credentials", {"credentials": "claude"}),
    Made("credentials copied in", {"credentials": "copy"}),
    Made("a bound that is not met", {"session_dollars": 5}),
    Made("a bound that is met", {"session_dollars": 0.01}, codes=(17,)),
    Made("a deadline that is met", {"timeout_seconds": 8}, script=SLOW, codes=(17,)),
    Made(
        "begun and gone on with",
        lines=(UNITS, ABSENT),
        runs=(("--max-sessions", "1"), ()),
        codes=(15, 0),
    ),
    Made("not finished", lines=(UNITS, ABSENT), runs=(("--max-sessions", "1"),), codes=(15,)),
    Made("without a heartbeat, signed", runs=(("--heartbeat", "0"),), signed=True),
)
assert len(FAST) + len(SLOWER) == 20


def run(made: Made, directory: Path) -> Path:
    path = batch_file(directory, lines=[_given(line) for line in made.lines], **made.changes)
    made.corpus(directory / "corpus")
    if made.script is not None:
        script = directory / "script.yaml"
        script.write_text(yaml.safe_dump(made.script))
        written = yaml.safe_load(path.read_text())
        path.write_text(yaml.safe_dump({**written, "rehearse": str(script)}))
    out = directory / "out"
    keys = {"RECORDER_KEYS": str(directory / "keys")}
    if made.signed:
        assert recorder("key", "new", environment=keys).code == 0
    for options, code in zip(made.runs, made.codes, strict=True):
        ran = recorder("batch", "run", path, "--out", out, *options, environment=keys)
        assert ran.code == code, ran.err
    return out


def _given(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in line.items() if value is not None}


def no_alarm(made: Made, directory: Path) -> Path:
    out = run(made, directory)
    keys = {"RECORDER_KEYS": str(directory / "keys")}
    ran = recorder("verify", out, environment=keys)
    assert (ran.code, ran.err) == (0, "")
    # A copy is as good, and so is the batch with its picture in it.
    copy = directory / "copy"
    shutil.copytree(out, copy)
    assert recorder("report", copy).code == 0
    assert verify_batch(copy).faults == ()
    if not made.signed and 0 in made.codes[-1:]:
        assert recorder("key", "new", environment=keys).code == 0
        assert recorder("sign", copy, environment=keys).code == 0
        found = json.loads(recorder("verify", copy, "--json", environment=keys).out)
        assert (found["verified"], found["trusted_as"]) == (True, "default")
    return out


@pytest.mark.parametrize("made", FAST, ids=lambda made: made.name)
def test_an_untouched_batch_verifies(made: Made, tmp_path: Path) -> None:
    out = no_alarm(made, tmp_path)
    if made.script is not CHANGING:
        return
    (session,) = read_batch(out).sessions
    files = {file.path: file for file in session.files or ()}
    changed = files["docs/overview.md"]
    assert changed.diff is not None
    assert (changed.kind, changed.why) == ("changed", "")
    assert changed.added == changed.removed
    assert any(line.startswith("-") for line in changed.diff)
    assert files["docs/new.md"].added == 1
    (kept,) = (out / "arms" / "before").iterdir()
    assert kept.read_bytes() == (tmp_path / "corpus" / "docs" / "overview.md").read_bytes()
    # And it is found where that text is another.
    os.chmod(kept, 0o600)
    kept.write_bytes(kept.read_bytes() + b"\n")
    assert {fault.file for fault in verify_batch(out).faults} == {f"arms/before/{kept.name}"}


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("made", SLOWER, ids=lambda made: made.name)
def test_a_batch_of_any_kind_verifies_untouched(made: Made, tmp_path: Path) -> None:
    no_alarm(made, tmp_path)
