"""Reading what a session left on disk: regular files only, and no link is followed."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from recorder.refusal import ExitCode, Refusal
from recorder.transform.cites import compile_cites
from recorder.transform.transform import TransformOptions, transform
from recorder.transform.workspace_files import WorkspaceFiles
from tests.stream.streams import call, init


def files(directory: Path, **limits: int) -> WorkspaceFiles:
    return WorkspaceFiles(directory, compile_cites(), **limits)


def digest(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_the_digest_is_of_the_bytes_on_disk(tmp_path: Path) -> None:
    """L13, L14, L28, L29"""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_bytes(b"see HW-DR-0001\n")
    (tmp_path / "empty").write_bytes(b"")
    read = files(tmp_path)
    assert read.document_digest("docs/a.md") == digest(b"see HW-DR-0001\n")
    assert read.document_digest("empty") == digest(b"")
    produced = read.produced_file("docs/a.md")
    assert (produced.sha256, produced.cites) == (digest(b"see HW-DR-0001\n"), ("HW-DR-0001",))
    assert read.produced_file("empty").cites == ()


def test_what_is_no_regular_file_inside_has_no_identity(tmp_path: Path) -> None:
    """L17"""
    outside = tmp_path / "outside.md"
    outside.write_bytes(b"HW-DR-0009")
    workspace = tmp_path / "workspace"
    (workspace / "real").mkdir(parents=True)
    (workspace / "real" / "a.md").write_bytes(b"a")
    (workspace / "link.md").symlink_to(outside)
    (workspace / "linked").symlink_to(workspace / "real")
    os.mkfifo(workspace / "pipe")
    read = files(workspace)
    never = ("link.md", "linked/a.md", "pipe", "real", "missing", "real/a.md/x")
    odd = ("../outside.md", str(outside), "real/../link.md", "", ".", "a\0b", "x" * 5000)
    for path in never + odd:
        assert read.document_digest(path) == "", path
        assert read.produced_file(path).sha256 == "", path
        assert read.produced_file(path).cites == ()


def test_a_file_over_the_limit_is_a_refusal_and_not_an_empty_list(tmp_path: Path) -> None:
    with open(tmp_path / "big", "wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(Refusal, match=r"big: .* over the limit") as refused:
        files(tmp_path).produced_file("big")
    assert refused.value.code is ExitCode.OBSERVATION


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_a_refusal(tmp_path: Path) -> None:
    (tmp_path / "closed").write_bytes(b"x")
    (tmp_path / "closed").chmod(0)
    with pytest.raises(Refusal, match="closed") as refused:
        files(tmp_path).document_digest("closed")
    assert refused.value.code is ExitCode.OBSERVATION


def test_a_workspace_that_is_none_is_usage(tmp_path: Path) -> None:
    with pytest.raises(Refusal) as refused:
        files(tmp_path / "missing")
    assert refused.value.code is ExitCode.USAGE


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    read = files(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        for path in ("a", "missing", "."):
            read.produced_file(path)
            read.document_digest(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_log_of_absolute_paths_is_read_from_the_directory_it_is_given(tmp_path: Path) -> None:
    """L15, L32"""
    (tmp_path / "a.md").write_bytes(b"after")
    read = files(tmp_path)
    stream = [
        init(cwd=None),
        call("Read", {"file_path": f"{tmp_path}/a.md"}),
        call("Edit", {"file_path": f"{tmp_path}/a.md"}),
    ]
    text = transform(
        stream,
        TransformOptions(
            probe="P",
            session="s",
            document_digest=read.document_digest,
            produced_file=read.produced_file,
            workspaces=(str(tmp_path),),
        ),
    )
    assert text.count(digest(b"after")) == 3
    assert '    - path: "a.md"\n' in text
