"""What a session can leave in its workspace: each is named, nothing of it is followed."""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from msgspec import UNSET

from recorder.batch.recording import Recorded, open_session, record
from recorder.refusal import ExitCode
from recorder.transcript.contract import Artifact, Event
from recorder.transcript.reader import read_events
from tests.recording.rig import EXAMPLES, Rig, line_of, program_as_harness, recorder
from tests.stream.streams import call, init, result

pytestmark = pytest.mark.engine

PROBE = "PROBE-EX-report"

# As the session's own user, in the workspace.
HAZARDS = r"""
truncate -s 20M sparse-small
ln -s /etc/passwd to-passwd
ln -s ../../../etc to-above
ln -s docs/overview.md to-inside
mkfifo pipe
printf plain >"$(printf 'not-utf8-\377\376')"
printf line >"$(printf 'new\nline')"
printf set >set-id; chmod 4755 set-id
mkdir closed; printf within >closed/within; chmod 000 closed
printf unreadable >unreadable; chmod 000 unreadable
ln docs/overview.md hard-to-old
printf twice >hard-one; ln hard-one hard-two
ln -s /workspace/pipe docs/link-to-pipe
rm docs/glossary.md; ln -s overview.md docs/glossary.md
chmod 755 docs/reference/releases.md
rm -r docs/guides; printf folder-no-more >docs/guides
mkdir -p deep/er; printf SLU-DEC-0001 >deep/er/cites.md
touch docs/overview.md
echo done
"""

SCRIPT = {
    "default": [
        {"content": [{"tool_use": {"name": "Bash", "input": {"command": HAZARDS}}}]},
        {
            "content": [
                {
                    "tool_use": {
                        "name": "Write",
                        "input": {"file_path": "{workspace}/to-above/x", "content": "climbs"},
                    }
                },
                {"tool_use": {"name": "Read", "input": {"file_path": "{workspace}/to-passwd"}}},
                {"tool_use": {"name": "Read", "input": {"file_path": "{workspace}/hard-two"}}},
            ]
        },
        {"content": [{"text": "so it is"}]},
    ]
}


@dataclass(frozen=True)
class Left:
    directory: Path
    evidence: Mapping[str, Any]
    event: Event

    def why(self, member: str) -> dict[str, str]:
        return {item["path"]: item["why"] for item in self.evidence["workspace"][member]}

    @property
    def produced(self) -> dict[str, Artifact]:
        assert isinstance(self.event.produced, tuple)
        return {artifact.path: artifact for artifact in self.event.produced}


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    out = tmp_path_factory.mktemp("hazards")
    script = out / "script.yaml"
    script.write_text(yaml.safe_dump(SCRIPT))
    ended = recorder(
        *("record", "--corpus", EXAMPLES / "corpus", "--probe", PROBE, "--session", "hazards"),
        *("--out", out, "--rehearse", script),
    )
    assert ended.code == 0, ended.err
    directory = out / "sessions" / "hazards"
    return Left(
        directory,
        json.loads((directory / "evidence.json").read_bytes()),
        read_events((directory / "event.yaml").read_text("utf-8")).events[0].event,
    )


def digest(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_the_commands_ran(left: Left) -> None:
    assert "done" in (left.directory / "raw.jsonl").read_text("utf-8")


def test_links_pipes_and_set_id_files_are_named_and_left(left: Left) -> None:
    assert left.why("left") == {
        "docs/glossary.md": "a symbolic link, which is never followed",
        "docs/link-to-pipe": "a symbolic link, which is never followed",
        "pipe": "a FIFO",
        "set-id": "carries a set-id bit",
        "to-above": "a symbolic link, which is never followed",
        "to-inside": "a symbolic link, which is never followed",
        "to-passwd": "a symbolic link, which is never followed",
    }


def test_plain_files_are_produced_whatever_their_names_and_modes(left: Left) -> None:
    produced = left.produced
    for path, content in {
        "not-utf8-\\xff\\xfe": b"plain",
        "new\nline": b"line",
        "closed/within": b"within",
        "unreadable": b"unreadable",
        "hard-one": b"twice",
        "hard-two": b"twice",
        "docs/guides": b"folder-no-more",
        "deep/er/cites.md": b"SLU-DEC-0001",
        "sparse-small": bytes(20 << 20),
        "hard-to-old": (EXAMPLES / "corpus" / "docs" / "overview.md").read_bytes(),
    }.items():
        assert produced[path].result == digest(content), path
    assert produced["deep/er/cites.md"].cites == ("SLU-DEC-0001",)
    for path in ("docs/overview.md", "docs/reference/releases.md", "set-id", "pipe"):
        assert path not in produced


def test_a_link_to_a_file_of_the_image_gives_no_digest(left: Left) -> None:
    results = {call.argument: call.result for call in left.event.calls if call.tool == "Read"}
    assert results == {
        "/workspace/to-passwd": "",
        "/workspace/hard-two": digest(b"twice"),
    }
    # It was written through a link; what the link names is not the workspace's.
    assert left.produced["to-above/x"].result == ""


def test_what_changed_otherwise_is_told(left: Left) -> None:
    workspace = left.evidence["workspace"]
    assert "docs/reference/releases.md" in workspace["mode_changed"]
    assert workspace["stopped"] is None
    assert workspace["not_read"] == []
    assert "docs/guides/installing.md" in workspace["removed"]


def test_kept_copies_are_plain_files_of_the_owner_alone(left: Left) -> None:
    copies = list((left.directory / "produced").iterdir())
    assert copies
    for copy in copies:
        assert copy.is_file()
        assert not copy.is_symlink()
        assert copy.stat().st_mode & 0o7777 == 0o600
        assert digest(copy.read_bytes()) == f"sha256:{copy.name}"
    assert not any(digest(Path("/etc/passwd").read_bytes()).endswith(c.name) for c in copies)
    for path, _, names in os.walk(left.directory):
        for name in names:
            assert os.lstat(os.path.join(path, name)).st_nlink == 1


def record_program(
    rig: Rig,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    program: str,
    *lines: bytes,
) -> Recorded:
    program_as_harness(monkeypatch)
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "stream").write_bytes(b"".join((init(), *lines, result())))
    job = rig.job(line_of(tree), name, f"{program}; cat stream", tmp_path / "out")
    return record(open_session(rig.engine, job, rig.setting()), job, rig.setting())


def test_sparse_files_are_bounded_and_what_was_not_read_is_no_empty_list(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "truncate -s 4G four; stat -c %s four >a-size; truncate -s 1900M sparse; "
        "truncate -s 100M large; echo z >z"
    )
    began = time.monotonic()
    recorded = record_program(rig, tmp_path, monkeypatch, "sparse", program)
    assert time.monotonic() - began < 30
    assert recorded.code == 0
    assert recorded.event is not None
    workspace = recorded.evidence.workspace
    assert workspace is not None
    not_read = {left.path: left.why for left in workspace.not_read}
    assert "over the limit of 67108864 a file" in not_read["large"]
    assert workspace.stopped is not None
    assert workspace.removed is None
    # The key is absent: what the session produced was not watched whole.
    assert recorded.event.produced is UNSET
    assert b"produced" not in (recorded.job.directory / "event.yaml").read_bytes()
    # The limit of a file's size is held.
    assert (recorded.job.directory / "produced" / digest(b"0\n")[7:]).is_file()


def test_a_document_that_a_call_named_and_nobody_read_is_a_refusal(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = call("Read", {"file_path": "/workspace/large"})
    recorded = record_program(rig, tmp_path, monkeypatch, "named", "truncate -s 100M large", read)
    assert recorded.refusal is not None
    assert recorded.refusal.code == ExitCode.OBSERVATION
    (reason,) = recorded.refusal.reasons
    assert "large: a call named it and it was not read (104857600 bytes" in reason
