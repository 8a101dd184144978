from __future__ import annotations

import io
import os
import stat
import tarfile
from pathlib import Path

import pytest

from recorder.refusal import Refusal
from recorder.workspace.archive import read_archive
from recorder.workspace.manifest import manifest_of
from recorder.workspace.packing import MODIFIED, Placed, pack


def plant(root: Path) -> None:
    (root / "docs").mkdir()
    (root / "empty").mkdir(mode=0o700)
    (root / "docs" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (root / "docs" / "run.sh").chmod(0o4755)
    (root / "link").symlink_to("docs/run.sh")
    for name in (b"\xff" * 3, b"new\nline", b"n" * 240, "\u00fc".encode()):
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(name * 300)


def test_a_packed_tree_reads_back_as_its_own_manifest(tmp_path: Path) -> None:
    plant(tmp_path)
    chunks = list(pack(tmp_path, 1000, 1000, prefix="workspace"))
    reading = read_archive(iter(chunks), prefix="workspace")
    assert reading.entries == manifest_of(tmp_path).entries
    assert sum(map(len, chunks)) % tarfile.RECORDSIZE == 0


def test_every_member_has_the_session_as_owner_one_time_and_no_set_id_bit(tmp_path: Path) -> None:
    plant(tmp_path)
    packed = io.BytesIO(b"".join(pack(tmp_path, 1007, 1008, prefix="workspace")))
    with tarfile.open(fileobj=packed) as archive:
        members = archive.getmembers()
    assert {(member.uid, member.gid) for member in members} == {(1007, 1008)}
    assert {member.mtime for member in members} == {MODIFIED}
    assert {member.uname for member in members} == {""}
    assert not any(member.mode & (stat.S_ISUID | stat.S_ISGID) for member in members)
    assert members[0].name == "workspace"
    assert members[0].isdir()
    assert [m.name for m in members if m.isdir()] == [
        "workspace",
        "workspace/docs",
        "workspace/empty",
    ]


def test_two_copies_of_one_tree_pack_to_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        plant(tmp_path / name)
    os.utime(tmp_path / "two" / "link", (1, 1), follow_symlinks=False)
    one, two = (b"".join(pack(tmp_path / name, 1, 1)) for name in ("one", "two"))
    assert one == two


def test_a_device_socket_or_fifo_is_refused_by_name(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refusal, match="pipe"):
        list(pack(tmp_path, 1, 1))


def test_a_file_that_grows_while_it_is_packed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 10)
    stream = pack(tmp_path, 1, 1)
    next(stream)
    (tmp_path / "a").write_bytes(b"x" * 5000)
    with pytest.raises(Refusal, match="changed while it was read"):
        list(stream)


def test_a_tree_with_files_put_over_it_and_others_left_out(tmp_path: Path) -> None:
    tree, new = tmp_path / "tree", tmp_path / "new"
    (tree / "docs").mkdir(parents=True)
    (tree / "docs" / "gone.md").write_bytes(b"gone")
    (tree / "docs" / "kept.md").write_bytes(b"kept")
    (tree / "docs" / "changed.md").write_bytes(b"before")
    new.write_bytes(b"x" * 1000)
    over = [Placed(b"docs/changed.md", 0o4755, new), Placed(b"caf\xe9/new", 0o600, new)]
    chunks = pack(
        tree,
        1000,
        1000,
        prefix="workspace",
        without={b"docs/gone.md", b"docs/changed.md"},
        over=over,
    )
    packed = b"".join(chunks)
    assert len(packed) % tarfile.RECORDSIZE == 0
    reading = read_archive(iter([packed]), prefix="workspace")
    assert [entry.path for entry in reading.entries] == [
        b"caf\xe9/new",
        b"docs/changed.md",
        b"docs/kept.md",
    ]
    assert reading.entries[1].size == 1000
    assert stat.S_IMODE(reading.entries[1].mode) == 0o755
