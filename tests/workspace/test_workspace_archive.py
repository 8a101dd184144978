"""The archive of a session's workspace: every hazard a session can plant in it."""

from __future__ import annotations

import io
import itertools
import os
import stat
import subprocess
import tarfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.workspace.archive import ArchiveLimits, ArchiveReading, Keep, Left, read_archive
from recorder.workspace.comparison import compare
from recorder.workspace.manifest import Entry, Manifest, digest_of, manifest_of
from recorder.workspace.packing import pack

MEGABYTE = 1 << 20
NOTHING = Manifest(())
FORMATS = {"pax": tarfile.PAX_FORMAT, "gnu": tarfile.GNU_FORMAT}


def member(name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(content), 0o644
    return info


def archive_of(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.PAX_FORMAT) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(
        fileobj=packed, mode="w", format=form, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def files(**contents: bytes) -> bytes:
    return archive_of(*((member(f"workspace/{n}", c), c) for n, c in contents.items()))


def read(
    data: bytes, *, limits: ArchiveLimits | None = None, keep: Keep | None = None, size: int = 4096
) -> ArchiveReading:
    chunks = (data[at : at + size] for at in range(0, len(data), size))
    return read_archive(chunks, prefix="workspace", limits=limits, keep=keep)


def real_tar(directory: Path, *options: str) -> bytes:
    return subprocess.run(
        ["tar", "--sort=name", "-C", str(directory), *options, "-cf", "-", "workspace"],
        check=True,
        capture_output=True,
    ).stdout


def real_workspace(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    return workspace


def test_regular_files_are_read_with_mode_size_and_digest() -> None:
    info = member("workspace/run.sh", b"echo")
    info.mode = 0o755
    reading = read(archive_of((member("workspace", kind=tarfile.DIRTYPE), b""), (info, b"echo")))
    assert reading.entries == (Entry(b"run.sh", stat.S_IFREG | 0o755, 4, digest_of(b"echo")),)
    assert reading.digest(b"run.sh") == digest_of(b"echo")
    assert reading.left == reading.not_read == ()
    assert reading.stopped is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(size=st.integers(1, 3000))
def test_the_split_into_chunks_changes_nothing(size: int) -> None:
    data = files(a=b"alpha" * 400, b=b"", c=b"\0" * 513)
    assert read(data, size=size) == read(data, size=len(data))


NAME = st.binary(min_size=1, max_size=300).filter(
    lambda name: (
        b"\0" not in name
        and not name.startswith(b"/")
        and not any(part in (b"", b".", b"..") for part in name.split(b"/"))
    )
)


@settings(deadline=None)
@given(name=NAME, form=st.sampled_from(sorted(FORMATS)))
def test_every_name_comes_back_as_its_bytes(name: bytes, form: str) -> None:
    info = member(os.fsdecode(b"workspace/" + name), b"x")
    reading = read(archive_of((info, b"x"), form=FORMATS[form]))
    assert [entry.path for entry in reading.entries] == [name]


def test_names_of_a_real_tar_come_back_as_their_bytes(tmp_path: Path) -> None:
    workspace = os.fsencode(real_workspace(tmp_path))
    names = {b"\xff\xfe", b"two\nlines", b"l" * 250, "\u00fc".encode(), b"tab\t", b"\\x41"}
    for name in names:
        with open(os.path.join(workspace, name), "wb") as file:
            file.write(b"x")
    for form in ("gnu", "posix"):
        reading = read(real_tar(tmp_path, f"--format={form}"))
        assert {entry.path for entry in reading.entries} == names


@pytest.mark.parametrize(
    "name",
    [
        "workspace/../etc/passwd",
        "/etc/passwd",
        "workspace/a/../../b",
        "../workspace/a",
        "other/a",
        "workspacex/a",
        "workspace/a//b",
        "workspace/./a",
        "..",
    ],
)
def test_a_name_that_climbs_or_lies_elsewhere_is_named_and_left(name: str) -> None:
    reading = read(archive_of((member(name, b"x"), b"x"), (member("workspace/z", b"z"), b"z")))
    assert [entry.path for entry in reading.entries] == [b"z"]
    assert reading.left == (Left(name.encode(), "its name leaves the workspace"),)


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (tarfile.FIFOTYPE, "FIFO"),
        (tarfile.CHRTYPE, "character device"),
        (tarfile.BLKTYPE, "block device"),
    ],
)
def test_special_files_are_named_and_left(kind: bytes, why: str) -> None:
    reading = read(archive_of((member("workspace/x", kind=kind), b"")))
    assert reading.entries == ()
    assert reading.left[0].path == b"x"
    assert why in reading.left[0].why


@pytest.mark.parametrize("bit", [stat.S_ISUID, stat.S_ISGID])
def test_a_set_id_file_is_named_and_left(bit: int) -> None:
    info = member("workspace/x", b"x")
    info.mode |= bit
    reading = read(archive_of((info, b"x"), (member("workspace/y", b"y"), b"y")))
    assert [entry.path for entry in reading.entries] == [b"y"]
    assert reading.left == (Left(b"x", "carries a set-id bit"),)


def test_a_link_is_its_own_text_and_what_it_points_at_is_never_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"of the host")
    workspace = real_workspace(tmp_path)
    (workspace / "out").symlink_to(secret)
    (workspace / "in").symlink_to("a")
    (workspace / "a").write_bytes(b"a")
    reading = read(real_tar(tmp_path), keep=Keep(tmp_path / "kept", NOTHING))
    assert reading.digest(b"out") is None
    assert reading.digest(b"in") is None
    changes = compare(NOTHING, reading)
    assert [entry.path for entry in changes.produced] == [b"a"]
    assert [left.path for left in changes.left] == [b"in", b"out"]
    assert digest_of(b"of the host") not in {entry.sha256 for entry in reading.entries}


def test_a_hard_link_is_the_file_it_names_twice(tmp_path: Path) -> None:
    workspace = real_workspace(tmp_path)
    (workspace / "a").write_bytes(b"one body")
    os.link(workspace / "a", workspace / "b")
    reading = read(real_tar(tmp_path), keep=Keep(tmp_path / "kept", NOTHING))
    assert reading.digest(b"a") == reading.digest(b"b") == digest_of(b"one body")
    assert [entry.path for entry in compare(NOTHING, reading).added] == [b"a", b"b"]


def test_a_new_hard_link_to_an_unchanged_file_is_produced_with_the_bytes_of_the_arm(
    tmp_path: Path,
) -> None:
    workspace = real_workspace(tmp_path)
    (workspace / "a").write_bytes(b"old")
    before = manifest_of(workspace)
    os.link(workspace / "a", workspace / "b")
    keep = Keep(tmp_path / "kept", before, arm=workspace)
    reading = read(real_tar(tmp_path), keep=keep)
    assert [entry.path for entry in compare(before, reading).added] == [b"b"]
    assert keep.path_of(digest_of(b"old")).read_bytes() == b"old"
    without = read(real_tar(tmp_path), keep=Keep(tmp_path / "kept2", before))
    assert [left.path for left in compare(before, without).left] == [b"b"]


@pytest.mark.parametrize("target", ["/etc/passwd", "workspace/../x", "workspace/later"])
def test_a_hard_link_to_nothing_that_was_read_is_left(target: str) -> None:
    info = member("workspace/x", kind=tarfile.LNKTYPE)
    info.linkname = target
    reading = read(archive_of((info, b""), (member("workspace/later", b"l"), b"l")))
    assert [entry.path for entry in reading.entries] == [b"later"]
    assert reading.left[0].path == b"x"
    assert "hard link" in reading.left[0].why


def test_a_hard_link_to_a_file_over_the_limit_is_not_read_either(tmp_path: Path) -> None:
    workspace = real_workspace(tmp_path)
    (workspace / "a").write_bytes(b"x" * 100)
    os.link(workspace / "a", workspace / "b")
    reading = read(real_tar(tmp_path), limits=ArchiveLimits(file_bytes=10))
    assert [item.path for item in reading.not_read] == [b"a", b"b"]


def test_a_name_that_comes_twice_is_left(tmp_path: Path) -> None:
    data = archive_of((member("workspace/a", b"1"), b"1"), (member("workspace/a", b"2"), b"2"))
    reading = read(data)
    assert reading.entries == ()
    assert reading.left == (Left(b"a", "the archive names it twice"),)


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_file_of_a_real_tar_is_its_bytes(tmp_path: Path, form: str) -> None:
    workspace = real_workspace(tmp_path)
    with open(workspace / "holes", "wb") as file:
        for at in range(0, 8 * MEGABYTE, 2 * MEGABYTE):
            file.seek(at)
            file.write(b"data" * 1024)
        file.truncate(9 * MEGABYTE + 3)
    (workspace / "z").write_bytes(b"after")
    data = real_tar(tmp_path, "-S", f"--format={form}")
    assert len(data) < MEGABYTE
    assert read(data).entries == manifest_of(workspace).entries


@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_a_sparse_file_over_the_limit_costs_only_what_it_stores(tmp_path: Path, form: str) -> None:
    workspace = real_workspace(tmp_path)
    with open(workspace / "huge", "wb") as file:
        file.write(b"start")
        file.truncate(4 << 30)
    (workspace / "z").write_bytes(b"after")
    reading = read(real_tar(tmp_path, "-S", f"--format={form}"))
    assert [entry.path for entry in reading.entries] == [b"z"]
    assert [item.path for item in reading.not_read] == [b"huge"]
    assert reading.stopped is None


def test_four_gigabytes_written_out_end_the_reading_at_once() -> None:
    """The engine writes a sparse file out: receiving 4 GB cost 17.8 s."""
    info = member("workspace/huge")
    info.size = 4 << 30
    given_out = 0
    closed = False

    def endless() -> Iterator[bytes]:
        nonlocal given_out, closed
        try:
            yield files(a=b"a")[:1024]
            yield info.tobuf(tarfile.GNU_FORMAT)
            while True:
                given_out += MEGABYTE
                yield bytes(MEGABYTE)
        finally:
            closed = True

    started = time.monotonic()
    reading = read_archive(endless(), prefix="workspace")
    assert time.monotonic() - started < 2
    assert given_out <= 2 * MEGABYTE
    assert closed
    assert [item.path for item in reading.not_read] == [b"huge"]
    assert reading.stopped is not None
    assert "not read" in reading.stopped
    changes = compare(Manifest((Entry(b"z", 0o100644, 1, digest_of(b"z")),)), reading)
    assert changes.removed is None
    assert not changes.whole


def test_files_over_a_limit_are_named_and_the_rest_is_read() -> None:
    data = files(a=b"x" * 50, b=b"y" * 500, c=b"z" * 30)
    reading = read(data, limits=ArchiveLimits(file_bytes=100))
    assert [entry.path for entry in reading.entries] == [b"a", b"c"]
    assert reading.not_read == (Left(b"b", "500 bytes, over the limit of 100 a file"),)
    reading = read(data, limits=ArchiveLimits(total_bytes=90))
    assert [item.path for item in reading.not_read] == [b"b"]
    reading = read(data, limits=ArchiveLimits(files=2))
    assert [entry.path for entry in reading.entries] == [b"a", b"b"]
    assert reading.stopped is not None
    assert "more than 2 files" in reading.stopped


@pytest.mark.parametrize("cut", [1, 511, 512, 700, 1024, 1536, 2000])
def test_a_cut_archive_is_refused_and_never_reads_as_removed_files(cut: int) -> None:
    data = files(a=b"a" * 600, b=b"b" * 10)
    end = len(data.rstrip(b"\0"))
    assert end > 2000
    with pytest.raises(Refusal) as refused:
        read(data[:cut])
    assert refused.value.code == ExitCode.OBSERVATION


def test_an_archive_without_its_end_or_with_garbage_is_refused() -> None:
    whole = archive_of((member("workspace/a", b"a"), b"a"))
    for data in (b"", whole[:1024], whole[:1024] + b"\xff" * 512, b"no archive" * 100):
        with pytest.raises(Refusal):
            read(data)


def test_changed_files_are_kept_under_their_digest_and_for_the_owner_alone(
    tmp_path: Path,
) -> None:
    before = Manifest((Entry(b"same", 0o100644, 4, digest_of(b"same")),))
    data = archive_of(
        (member("workspace/same", b"same"), b"same"),
        (member("workspace/-rf \n", b"new"), b"new"),
        (member("workspace/twin", b"new"), b"new"),
        (member("workspace/.headwater/cache", b"c"), b"c"),
    )
    keep = Keep(tmp_path / "produced", before)
    reading = read(data, keep=keep)
    assert reading.kept == {digest_of(b"new")}
    assert [path.name for path in keep.directory.iterdir()] == [digest_of(b"new")[7:]]
    copy = keep.path_of(digest_of(b"new"))
    assert copy.read_bytes() == b"new"
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert stat.S_IMODE(keep.directory.stat().st_mode) == 0o700
    assert [(item.path, item.why) for item in reading.excluded] == [
        (b".headwater/cache", "under .headwater")
    ]


def test_a_large_changed_file_is_kept_and_a_large_unchanged_one_leaves_no_trace(
    tmp_path: Path,
) -> None:
    old, new = b"o" * (3 * MEGABYTE + 1), b"n" * (3 * MEGABYTE)
    before = Manifest((Entry(b"old", 0o100644, len(old), digest_of(old)),))
    keep = Keep(tmp_path / "produced", before)
    data = archive_of((member("workspace/new", new), new), (member("workspace/old", old), old))
    read(data, keep=keep)
    assert [path.name for path in keep.directory.iterdir()] == [digest_of(new)[7:]]
    assert keep.path_of(digest_of(new)).read_bytes() == new


def test_a_link_planted_in_the_directory_of_copies_is_not_written_through(
    tmp_path: Path,
) -> None:
    victim = tmp_path / "victim"
    victim.write_bytes(b"untouched")
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / ".partial").symlink_to(victim)
    read(files(a=b"a"), keep=Keep(kept, NOTHING))
    assert victim.read_bytes() == b"untouched"


def test_memory_stays_flat_over_large_files(tmp_path: Path) -> None:
    def stream() -> Iterator[bytes]:
        for number in range(3):
            info = member(f"workspace/{number}")
            info.size = 40 * MEGABYTE
            yield info.tobuf()
            yield from itertools.repeat(bytes(MEGABYTE), 40)
        yield bytes(10240)

    tracemalloc.start()
    try:
        reading = read_archive(stream(), prefix="workspace", keep=Keep(tmp_path / "kept", NOTHING))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(reading.entries) == 3
    assert peak < 12 * MEGABYTE


def test_twenty_thousand_files_are_read_within_a_second_and_a_half(tmp_path: Path) -> None:
    data = archive_of(
        *(
            (member(f"workspace/d{number % 50}/{number}", b"text" * 200), b"text" * 200)
            for number in range(20_000)
        ),
        form=tarfile.GNU_FORMAT,
    )
    started = time.process_time()
    reading = read(data, size=32 * 1024, keep=Keep(tmp_path, NOTHING))
    assert time.process_time() - started < 1.5
    assert len(reading.entries) == 20_000
    assert len(reading.kept) == 1


def test_what_was_packed_for_a_session_compares_as_unchanged(tmp_path: Path) -> None:
    workspace = real_workspace(tmp_path)
    (workspace / "a").write_bytes(b"a")
    (workspace / "l").symlink_to("a")
    before = manifest_of(workspace)
    reading = read_archive(pack(workspace, 1000, 1000, prefix="workspace"), prefix="workspace")
    changes = compare(before, reading)
    assert changes.produced == ()
    assert changes.removed == ()
    assert changes.left == ()
    assert changes.whole


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
def test_a_folder_whose_files_the_engine_cannot_see_is_not_read(form: int) -> None:
    deep = "/".join(["d" * 250] * 16)
    folder = member(f"workspace/{deep}", kind=tarfile.DIRTYPE)
    changes = compare(NOTHING, read(archive_of((folder, b""), form=form)))
    assert [item.path for item in changes.not_read] == [deep.encode()]
    assert not changes.whole


def test_a_folder_as_deep_as_any_that_is_worked_in_hides_nothing() -> None:
    folder = member("workspace/" + "/".join(["d" * 250] * 14), kind=tarfile.DIRTYPE)
    assert compare(NOTHING, read(archive_of((folder, b"")))).whole
