from __future__ import annotations

import stat

from recorder.workspace.archive import ArchiveReading, Left
from recorder.workspace.comparison import compare
from recorder.workspace.manifest import Entry, Manifest, digest_of


def file(path: bytes, content: bytes, mode: int = 0o644) -> Entry:
    return Entry(path, stat.S_IFREG | mode, len(content), digest_of(content))


def link(path: bytes, target: bytes) -> Entry:
    return Entry(path, stat.S_IFLNK | 0o777, len(target), digest_of(target))


def test_added_changed_removed_and_touched_m01_m02_m04_m16() -> None:
    before = Manifest((file(b"touched", b"1"), file(b"edited", b"1"), file(b"gone", b"1")))
    after = ArchiveReading((file(b"edited", b"2"), file(b"new", b"3"), file(b"touched", b"1")))
    changes = compare(before, after)
    assert changes.added == (file(b"new", b"3"),)
    assert changes.changed == (file(b"edited", b"2"),)
    assert changes.removed == (b"gone",)
    assert [entry.path for entry in changes.produced] == [b"edited", b"new"]


def test_a_change_of_permissions_alone_is_listed_and_not_produced() -> None:
    changes = compare(Manifest((file(b"a", b"1"),)), ArchiveReading((file(b"a", b"1", 0o755),)))
    assert changes.mode_changed == (file(b"a", b"1", 0o755),)
    assert changes.produced == ()
    assert changes.removed == ()


def test_a_link_of_the_arm_stands_and_a_new_one_is_left() -> None:
    before = Manifest((link(b"AGENTS.md", b"CLAUDE.md"), link(b"b", b"x")))
    after = ArchiveReading((link(b"AGENTS.md", b"CLAUDE.md"), link(b"b", b"y"), link(b"c", b"x")))
    changes = compare(before, after)
    assert [left.path for left in changes.left] == [b"b", b"c"]
    assert changes.produced == ()
    assert changes.removed == ()


def test_a_file_put_where_a_link_was_is_added_though_its_bytes_are_the_links_text() -> None:
    changes = compare(Manifest((link(b"a", b"x"),)), ArchiveReading((file(b"a", b"x"),)))
    assert [entry.path for entry in changes.added] == [b"a"]


def test_a_file_replaced_by_something_left_or_not_read_is_not_removed() -> None:
    before = Manifest((file(b"a", b"1"), file(b"b", b"1")))
    after = ArchiveReading((), left=(Left(b"a", "a FIFO"),), not_read=(Left(b"b", "big"),))
    changes = compare(before, after)
    assert changes.removed == ()
    assert not changes.whole


def test_excluded_files_are_named_and_not_produced() -> None:
    after = ArchiveReading(
        (file(b".headwater/x", b"1"),), excluded=(Left(b".headwater/x", "under .headwater"),)
    )
    changes = compare(Manifest(()), after)
    assert changes.produced == ()
    assert changes.excluded[0].path == b".headwater/x"


def test_an_archive_that_was_not_read_to_its_end_says_nothing_about_removed_files() -> None:
    changes = compare(Manifest((file(b"a", b"1"),)), ArchiveReading((), stopped="too big"))
    assert changes.removed is None
    assert not changes.whole
