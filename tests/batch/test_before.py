"""Texts of an arm that a session changed: kept once, by digest, and shown as a difference."""

from __future__ import annotations

import shutil
import stat
from pathlib import Path

from recorder.batch.before import BEFORE, keep_texts
from recorder.report.difference import TEXT_BYTES
from recorder.report.reading import read_batch
from recorder.workspace.manifest import Entry, Manifest, digest_of, manifest_of, write_manifest
from tests.report import made

NAME = "L1-campaign-present"


def tree(directory: Path, **contents: bytes) -> tuple[Path, Manifest]:
    directory.mkdir(parents=True)
    for name, content in contents.items():
        (directory / name).write_bytes(content)
    return directory, manifest_of(directory)


def changed(*names: str) -> list[Entry]:
    return [Entry(name.encode(), stat.S_IFREG | 0o644, 1, digest_of(b"x")) for name in names]


def test_the_text_of_a_changed_file_is_kept_once_and_no_other(tmp_path: Path) -> None:
    arm, manifest = tree(
        tmp_path / "arm",
        a=b"one\ntwo\n",
        b=b"never changed",
        binary=b"\0",
        large=b"x" * (TEXT_BYTES + 1),
    )
    (arm / "link").symlink_to("b")
    manifest = manifest_of(arm)
    before = tmp_path / "out" / "arms" / BEFORE
    for _ in range(2):
        keep_texts(arm, manifest, changed("a", "binary", "large", "link", "added"), before)
    (kept,) = before.iterdir()
    assert (f"sha256:{kept.name}", kept.read_bytes()) == (digest_of(b"one\ntwo\n"), b"one\ntwo\n")
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600


def test_a_text_that_the_tree_no_longer_holds_is_not_kept(tmp_path: Path) -> None:
    arm, manifest = tree(tmp_path / "arm", a=b"one\n")
    (arm / "a").write_bytes(b"another\n")
    keep_texts(arm, manifest, changed("a"), tmp_path / BEFORE)
    assert not (tmp_path / BEFORE).exists()


def test_a_report_shows_what_a_session_changed(tmp_path: Path) -> None:
    arm, manifest = tree(tmp_path / "arm", a=b"one\ntwo\nthree\n")
    out = tmp_path / "out"
    keep_texts(arm, manifest, changed("a"), out / "arms" / BEFORE)
    (out / "arms" / f"{NAME}.manifest").write_text(write_manifest(manifest))
    after = b"one\n2\nthree\nfour\n"
    name = f"{NAME}-p1-r1"
    artifact = made.Artifact(path="a", result=digest_of(after), cites=())
    session = made.write_session(
        out / "sessions" / name,
        evidence_json=made.evidence(name, workspace={"added": [], "changed": ["a"]}),
        record_md=made.record(name, produced=(artifact,)),
    )
    (session / "produced").mkdir()
    (session / "produced" / digest_of(after).removeprefix("sha256:")).write_bytes(after)
    (view,) = read_batch(out).sessions
    assert view.files is not None
    (file,) = view.files
    assert file.diff is not None
    assert {"-two", "+2", "+four"} <= set(file.diff)
    assert (file.added, file.removed, file.why) == (2, 1, "")
    shutil.rmtree(out / "arms")
    (file,) = read_batch(out).sessions[0].files or ()
    assert "is not kept" in file.why
    assert (file.added, file.removed) == (None, None)
