"""Whatever is changed in a batch is found, and named by its file; what is untouched is not.

Over a signed batch every change of every file. Then changes that are signed again, by whoever
holds a key: those are found only where a file can be derived from others.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from proxy.egress import START, digest_of_line
from recorder.evidence.signing_keys import Trusted
from recorder.evidence.verification import LOCK, REPORT, SIGNER, STATEMENT, verify_batch
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import digest_of
from tests.evidence_signing.conftest import sign
from tests.recording.rig import recorder

pytestmark = pytest.mark.engine

Copy = Callable[[], Path]
Change = Callable[[bytes, random.Random], bytes | None]

ONE = "L1-campaign-present-p1-r1"
WRITER = "L1-campaign-present-p2-r1"
OTHER = "L2-campaign-absent-p1-r1"


def flipped(data: bytes, chance: random.Random) -> bytes | None:
    if not data:
        return None
    at = chance.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :]


def without_a_line(data: bytes, chance: random.Random) -> bytes | None:
    lines = data.splitlines(keepends=True)
    if not lines:
        return None
    del lines[chance.randrange(len(lines))]
    return b"".join(lines)


def with_a_pair_reordered(data: bytes, chance: random.Random) -> bytes | None:
    lines = data.splitlines(keepends=True)
    pairs = [at for at in range(len(lines) - 1) if lines[at] != lines[at + 1]]
    if not pairs:
        return None
    at = chance.choice(pairs)
    lines[at], lines[at + 1] = lines[at + 1], lines[at]
    return b"".join(lines)


def cut(data: bytes, chance: random.Random) -> bytes | None:
    return data[: -chance.randint(1, min(len(data), 40))] if data else None


def longer(data: bytes, _: random.Random) -> bytes | None:
    return data + b"\n"


def empty(data: bytes, _: random.Random) -> bytes | None:
    return b"" if data else None


CHANGES: tuple[Change, ...] = (
    flipped,
    without_a_line,
    with_a_pair_reordered,
    cut,
    longer,
    empty,
)


def files_of(directory: Path) -> Iterator[str]:
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            yield path.relative_to(directory).as_posix()


def faults_of(directory: Path) -> list[str]:
    """The files at fault, in the order they are told."""
    return [fault.file for fault in verify_batch(directory).faults]


def test_an_untouched_batch_has_no_fault(signed: Path, signing_key: Ed25519PrivateKey) -> None:
    own = Trusted("me", signing_key.public_key())
    found = verify_batch(signed, trusted=[own], required=own)
    assert found.faults == ()
    assert (found.signature.name, found.sessions, found.transcripts) == ("me", 6, 2)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.timeout(600)
def test_every_change_of_every_file_is_found(copy: Copy, change: Change) -> None:
    directory = copy()
    chance = random.Random(change.__name__)
    changed = 0
    for name in list(files_of(directory)):
        path = directory / name
        before = path.read_bytes()
        after = change(before, chance)
        if after is None or after == before:
            continue
        changed += 1
        path.write_bytes(after)
        found = faults_of(directory)
        # A key that was changed is no longer the one that signed.
        own = {name, STATEMENT} if name == SIGNER else {name}
        assert own & set(found), f"{change.__name__} of {name} gives {found}"
        path.write_bytes(before)
    assert changed > 40
    assert faults_of(directory) == []


@pytest.mark.timeout(300)
def test_every_file_that_is_taken_away_is_found(copy: Copy) -> None:
    directory = copy()
    for name in list(files_of(directory)):
        if name == LOCK:
            continue
        path = directory / name
        before = path.read_bytes()
        path.unlink()
        assert name in faults_of(directory), name
        path.write_bytes(before)


@pytest.mark.timeout(300)
def test_every_file_swapped_between_two_sessions_is_found(copy: Copy) -> None:
    directory = copy()
    for name in list(files_of(directory / "sessions" / ONE)):
        paths = [directory / "sessions" / session / name for session in (ONE, OTHER)]
        if not all(path.exists() for path in paths):
            continue
        one, other = (path.read_bytes() for path in paths)
        if one == other:
            continue
        paths[0].write_bytes(other)
        paths[1].write_bytes(one)
        found = faults_of(directory)
        assert {f"sessions/{ONE}/{name}", f"sessions/{OTHER}/{name}"} <= set(found), name
        # Signed again it is found too, but for what comes from the driver alone.
        sign(directory, Ed25519PrivateKey.generate())
        assert (name in ("started", "stderr.log")) == (faults_of(directory) == []), name
        paths[0].write_bytes(one)
        paths[1].write_bytes(other)


@pytest.mark.parametrize(
    "name",
    [
        "extra",
        "evidence/extra.json",
        "plans/L3-campaign-mcp.txt",
        "assembled/L3-campaign-mcp.md",
        f"sessions/{ONE}/extra",
        f"sessions/{ONE}/produced/extra",
        f"sessions/{ONE}/produced/{'0' * 64}",
        "sessions/another/evidence.json",
        "report.html.part",
        "evidence/statement.json.part",
    ],
)
def test_a_file_that_is_added_is_found_signed_and_unsigned(copy: Copy, name: str) -> None:
    directory = copy()
    path = directory / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"{}")
    assert name in faults_of(directory)
    sign(directory, Ed25519PrivateKey.generate())
    assert name in faults_of(directory)
    (directory / STATEMENT).unlink()
    (directory / SIGNER).unlink()
    assert name in faults_of(directory)


def test_a_text_of_an_arm_is_held_to_its_manifest(
    copy: Copy, signing_key: Ed25519PrivateKey
) -> None:
    directory = copy()
    text = Path("examples/corpus/docs/overview.md").read_bytes()
    path = directory / "arms" / "before" / digest_of(text).removeprefix("sha256:")
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(text)
    name = path.relative_to(directory).as_posix()
    assert faults_of(directory) == [name]
    sign(directory, signing_key)
    assert faults_of(directory) == []
    path.write_bytes(b"another text")
    sign(directory, signing_key)
    assert faults_of(directory) == [name]
    path.rename(path.with_name(digest_of(b"another text").removeprefix("sha256:")))
    sign(directory, signing_key)
    (stray,) = faults_of(directory)
    assert stray.startswith("arms/before/")


def test_a_link_and_a_fifo_are_found_and_not_followed(copy: Copy, tmp_path: Path) -> None:
    import os

    directory = copy()
    path = directory / "sessions" / ONE / "raw.jsonl"
    moved = tmp_path / "raw.jsonl"
    shutil.move(path, moved)
    path.symlink_to(moved)
    os.mkfifo(directory / "sessions" / ONE / "pipe")
    found = faults_of(directory)
    assert {f"sessions/{ONE}/raw.jsonl", f"sessions/{ONE}/pipe"} <= set(found)


def chained(lines: list[dict[str, object]]) -> bytes:
    """Egress lines with a chain that holds, as a forger would make it."""
    previous, written = START, []
    for number, line in enumerate(lines, start=1):
        members = {**line, "sequence": number}
        if line["kind"] == "close":
            members["count"] = number
        members["previous"] = previous
        data = json.dumps(members, separators=(",", ":")).encode()
        written.append(data + b"\n")
        previous = digest_of_line(data)
    return b"".join(written)


def edit(path: Path, *pairs: tuple[str, str]) -> None:
    text = path.read_text()
    for old, new in pairs:
        assert old in text, (path.name, old)
        text = text.replace(old, new)
    path.write_text(text)


def another_answer(directory: Path) -> str:
    """Consistently: in the event, in the record and in the transcript."""
    for name in (
        f"sessions/{ONE}/event.yaml",
        f"sessions/{ONE}/record.md",
        "assembled/L1-campaign-present.md",
    ):
        edit(directory / name, ('answer: "unsigned"', 'answer: "signed"'))
    return f"sessions/{ONE}/event.yaml"


def another_cost(directory: Path) -> str:
    path = directory / "sessions" / ONE / "record.md"
    cost = int(re.findall(r"cost_cents: (\d+)", path.read_text())[0])
    edit(path, (f"cost_cents: {cost}", f"cost_cents: {cost + 1}"))
    whole = directory / "assembled" / "L1-campaign-present.md"
    total = int(re.findall(r"cost_cents: (\d+)", whole.read_text())[0])
    edit(whole, (f"cost_cents: {total}", f"cost_cents: {total + 1}"))
    return f"sessions/{ONE}/record.md"


def a_call_less(directory: Path) -> str:
    """Out of the stream, with its result: the provider saw it."""
    path = directory / "sessions" / ONE / "raw.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    at = next(number for number, line in enumerate(lines) if b'"tool_use"' in line)
    told = next(number for number, line in enumerate(lines) if b'"tool_result"' in line)
    path.write_bytes(b"".join(line for n, line in enumerate(lines) if n not in (at, told)))
    return f"sessions/{ONE}/evidence.json"


def a_refusal_less(directory: Path) -> str:
    """Out of the log, with a chain and counts that hold."""
    path = directory / "sessions" / ONE / "egress.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    at = next(n for n, line in enumerate(lines) if line["kind"] == "decision")
    assert lines[at]["decision"] == "refused"
    del lines[at]
    lines[-1]["refused"] -= 1
    path.write_bytes(chained(lines))
    return f"sessions/{ONE}/evidence.json"


def a_line_of_no_schema(directory: Path) -> str:
    path = directory / "sessions" / ONE / "egress.jsonl"
    lines = [json.loads(line) for line in path.read_bytes().splitlines()]
    lines[2]["more"] = "x"
    path.write_bytes(chained(lines))
    return f"sessions/{ONE}/egress.jsonl"


def a_count_of_its_own(directory: Path) -> str:
    edit(directory / "sessions" / ONE / "evidence.json", ('"calls": 3', '"calls": 2'))
    return f"sessions/{ONE}/evidence.json"


def a_corroboration_of_its_own(directory: Path) -> str:
    path = directory / "sessions" / ONE / "evidence.json"
    edit(path, ('"corroborated": ', '"corroborated": 1'))
    return f"sessions/{ONE}/evidence.json"


def a_member_more(directory: Path) -> str:
    path = directory / "sessions" / ONE / "evidence.json"
    edit(path, ('  "schema": ', '  "more": 1,\n  "schema": '))
    return f"sessions/{ONE}/evidence.json"


def another_document(directory: Path) -> str:
    path = directory / "sessions" / ONE / "evidence.json"
    digest = json.loads(path.read_text())["document_digests"]["docs/reference/releases.md"]
    for name in ("evidence.json", "event.yaml", "record.md"):
        edit(directory / "sessions" / ONE / name, (digest, f"sha256:{'1' * 64}"))
    edit(directory / "assembled" / "L1-campaign-present.md", (digest, f"sha256:{'1' * 64}"))
    return f"sessions/{ONE}/evidence.json"


def another_product(directory: Path) -> str:
    """Other bytes of a copy, under the digest that they have, but cited as before."""
    from hashlib import sha256

    folder = directory / "sessions" / WRITER / "produced"
    (path,) = folder.iterdir()
    data = path.read_bytes().replace(b"DEC-0001", b"DEC-0009")
    new = sha256(data).hexdigest()
    path.unlink()
    (folder / new).write_bytes(data)
    for name in ("event.yaml", "record.md"):
        edit(directory / "sessions" / WRITER / name, (path.name, new))
    return f"sessions/{WRITER}/event.yaml"


def a_network(directory: Path) -> str:
    edit(
        directory / "sessions" / ONE / "evidence.json",
        ('"NetworkMode": "none"', '"NetworkMode": "bridge"'),
    )
    return f"sessions/{ONE}/evidence.json"


def a_tree_that_was_not_pinned(directory: Path) -> str:
    edit(directory / "arms" / "L1-campaign-present.manifest", (" 100644 ", " 100755 "))
    return "arms/L1-campaign-present.manifest"


def another_plan(directory: Path) -> str:
    edit(directory / "plans" / "L1-campaign-present.txt", ("seed: ", "seed: 1"))
    return "plans/L1-campaign-present.txt"


def another_order(directory: Path) -> str:
    path = directory / "batch.json"
    pinned = json.loads(path.read_text())
    first, second, *_ = pinned["order"]
    edit(path, (first, "@"), (second, first), ("@", second))
    return "batch.json"


def an_open_attack(directory: Path) -> str:
    path = directory / "evidence" / "construction.json"
    path.write_text(path.read_text().replace('"open": false', '"open": true', 1))
    return "evidence/construction.json"


def a_refusal_that_recorded(directory: Path) -> str:
    refusal = '"refusal": {\n    "code": 12,\n    "reasons": []\n  }'
    edit(directory / "sessions" / ONE / "evidence.json", ('"refusal": null', refusal))
    return f"sessions/{ONE}/event.yaml"


def a_session_without_its_end(directory: Path) -> str:
    (directory / "sessions" / ONE / "evidence.json").unlink()
    return f"sessions/{ONE}/evidence.json"


def a_transcript_in_other_words(directory: Path) -> str:
    edit(directory / "assembled" / "L1-campaign-present.md", ("**The channel.**", "**A channel.**"))
    return "assembled/L1-campaign-present.md"


FORGERIES = (
    another_answer,
    another_cost,
    a_call_less,
    a_refusal_less,
    a_line_of_no_schema,
    a_count_of_its_own,
    a_corroboration_of_its_own,
    a_member_more,
    another_document,
    another_product,
    a_network,
    a_tree_that_was_not_pinned,
    another_plan,
    another_order,
    an_open_attack,
    a_refusal_that_recorded,
    a_session_without_its_end,
    a_transcript_in_other_words,
)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_what_is_signed_again_is_found_where_it_can_be_derived(
    copy: Copy, forge: Callable[[Path], str], signing_key: Ed25519PrivateKey
) -> None:
    directory = copy()
    named = forge(directory)
    assert named in faults_of(directory)
    sign(directory, signing_key)
    assert named in faults_of(directory), verify_batch(directory).faults


def test_a_statement_that_says_more_than_its_files_is_found(
    copy: Copy, signing_key: Ed25519PrivateKey
) -> None:
    from recorder.evidence.signing import open_envelope, seal

    directory = copy()
    path = directory / STATEMENT
    payload = json.loads(open_envelope(path.read_bytes(), signing_key.public_key()))
    payload["predicate"]["corroboration"]["disagreeing"] = 1
    path.write_bytes(seal(json.dumps(payload, separators=(",", ":")).encode(), signing_key))
    (fault,) = verify_batch(directory).faults
    assert (fault.file, fault.member) == (STATEMENT, "predicate.corroboration")


def test_another_signer_and_no_signer_are_told(copy: Copy, signing_key: Ed25519PrivateKey) -> None:
    own = Trusted("me", signing_key.public_key())
    directory = copy()
    sign(directory, Ed25519PrivateKey.generate())
    found = verify_batch(directory, trusted=[own])
    assert found.faults == ()
    assert "nobody here has trusted" in next(found.said())
    assert faults_of_key(directory, own) == [STATEMENT]
    (directory / STATEMENT).unlink()
    (directory / SIGNER).unlink()
    assert next(verify_batch(directory).said()).startswith("unsigned: ")
    assert faults_of_key(directory, own) == [STATEMENT]


def faults_of_key(directory: Path, key: Trusted) -> list[str]:
    return [fault.file for fault in verify_batch(directory, required=key).faults]


def test_a_picture_is_no_fault_and_an_attempt_that_the_ledger_does_not_know_is_one(
    copy: Copy, signing_key: Ed25519PrivateKey
) -> None:
    directory = copy()
    (directory / REPORT).write_bytes(b"a picture")
    assert faults_of(directory) == []
    sessions = directory / "sessions"
    shutil.copytree(sessions / ONE, sessions / f"{ONE}.attempt-2")
    sign(directory, signing_key)
    found = verify_batch(directory).faults
    assert found
    assert {fault.what for fault in found} == {"is of an attempt that the ledger does not know"}


def test_the_verb_names_the_first_fault_and_lists_all(copy: Copy) -> None:
    directory = copy()
    assert recorder("verify", directory).code == 0
    edit(directory / "sessions" / ONE / "evidence.json", ('"calls": 3', '"calls": 2'))
    (directory / "plans" / "L1-campaign-present.txt").unlink()
    ran = recorder("verify", directory)
    assert ran.code == ExitCode.CORRUPT
    assert "counts.calls: is 2, and its raw files give 3" in ran.err
    assert "plans/L1-campaign-present.txt: is missing" in ran.err
    told = json.loads(recorder("verify", directory, "--json").out)
    assert told["verified"] is False
    assert len(told["faults"]) == len(ran.err.splitlines())


def test_sign_refuses_what_does_not_verify_and_signs_what_does(
    copy: Copy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_KEYS", str(tmp_path / "keys"))
    assert recorder("key", "new").code == 0
    directory = copy()
    assert recorder("sign", directory).code == 0
    ran = recorder("verify", directory)
    assert ran.code == 0
    assert "trusted here as default" in ran.out
    assert recorder("verify", directory, "--key", tmp_path / "keys" / "default.pub").code == 0
    edit(directory / "sessions" / ONE / "evidence.json", ('"calls": 3', '"calls": 2'))
    ran = recorder("sign", directory)
    assert ran.code == ExitCode.CORRUPT
    assert not (directory / STATEMENT).exists()


def test_what_is_no_batch_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=r"no batch's directory"):
        verify_batch(tmp_path)


def test_sessions_of_no_batch_are_none_and_a_batch_that_lost_its_files_is_corrupt(
    copy: Copy, tmp_path: Path
) -> None:
    directory = copy()
    alone = tmp_path / "recorded"
    for kept in ("sessions", "evidence"):
        shutil.copytree(directory / kept, alone / kept)
    (alone / STATEMENT).unlink(missing_ok=True)
    ran = recorder("verify", alone)
    assert (ran.code, ran.out) == (ExitCode.USAGE, "")
    assert "holds sessions and no batch (batch.json, ledger.jsonl)" in ran.err
    for lost in ("batch.json", "ledger.jsonl", STATEMENT):
        (directory / lost).unlink(missing_ok=True)
    assert recorder("verify", directory).code == ExitCode.CORRUPT
