from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.refusal import ExitCode, Refusal
from recorder.workspace.manifest import (
    Entry,
    Manifest,
    digest_of,
    manifest_of,
    read_manifest,
    write_manifest,
)
from recorder.workspace.names import escape_name, inside, path_text, unescape_name

NAMES = st.binary(min_size=1, max_size=40).filter(lambda name: b"\0" not in name)
ENTRIES = st.builds(
    Entry,
    path=NAMES,
    mode=st.integers(0, 0o777).map(lambda mode: stat.S_IFREG | mode),
    size=st.integers(0, 1 << 60),
    sha256=st.binary(max_size=8).map(digest_of),
)


@given(NAMES)
def test_every_name_survives_its_escaped_form(name: bytes) -> None:
    text = escape_name(name)
    assert text.isascii()
    assert text.isprintable()
    assert " " not in text
    assert unescape_name(text) == name


@pytest.mark.parametrize("text", ["\\x41", "\\xZZ", "\\", "a b", "é", "\\xAB"])
def test_a_text_that_is_no_escaped_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="escaped name"):
        unescape_name(text)


@given(st.lists(ENTRIES, unique_by=lambda entry: entry.path, max_size=8))
def test_every_manifest_survives_its_text_form(entries: list[Entry]) -> None:
    manifest = Manifest(tuple(entries))
    text = write_manifest(manifest)
    assert len(text.split("\n")) == len(entries) + 2
    assert read_manifest(text, "m") == manifest


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("recorder manifest 1", 1),
        ("recorder manifest 2\n", 1),
        ("recorder manifest 1\nnonsense\n", 2),
        (f"recorder manifest 1\n{digest_of(b'')} 100644 00 a\n", 2),
        (f"recorder manifest 1\n{digest_of(b'')} 100644 0 a\\xff\\\n", 2),
        ("recorder manifest 1\n" + f"{digest_of(b'')} 100644 0 a\n" * 2, 3),
        (
            f"recorder manifest 1\n{digest_of(b'')} 100644 0 b\n{digest_of(b'')} 100644 0 a\n",
            3,
        ),
    ],
)
def test_a_manifest_text_that_was_tampered_with_is_refused_with_its_line(
    text: str, line: int
) -> None:
    with pytest.raises(Refusal) as refused:
        read_manifest(text, "arm.manifest")
    assert refused.value.code == ExitCode.CORRUPT
    assert refused.value.reasons[0].startswith(f"arm.manifest:{line}:")


def test_a_manifest_lists_files_and_links_and_no_directory(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "empty").mkdir()
    (tmp_path / "docs" / "a.md").write_bytes(b"alpha")
    (tmp_path / "docs" / "a.md").chmod(0o640)
    (tmp_path / "AGENTS.md").symlink_to("docs/a.md")
    manifest = manifest_of(tmp_path)
    assert manifest.entries == (
        Entry(b"AGENTS.md", stat.S_IFLNK | 0o777, 9, digest_of(b"docs/a.md")),
        Entry(b"docs/a.md", stat.S_IFREG | 0o640, 5, digest_of(b"alpha")),
    )
    assert manifest.digest(b"docs/a.md") == digest_of(b"alpha")
    assert manifest.digest(b"AGENTS.md") is None


def test_a_manifest_holds_names_that_are_not_utf8_or_hold_newlines(tmp_path: Path) -> None:
    names = {b"\xff\xfe", b"two\nlines", "gr\u00fc\u00df".encode(), b"-x y"}
    for name in names:
        with open(os.path.join(os.fsencode(tmp_path), name), "wb") as file:
            file.write(name)
    manifest = manifest_of(tmp_path)
    assert {entry.path for entry in manifest.entries} == names
    assert read_manifest(write_manifest(manifest), "m") == manifest


def test_a_link_to_a_folder_is_not_walked(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(".")
    assert [entry.path for entry in manifest_of(tmp_path).entries] == [b"loop"]


def test_a_fifo_in_a_tree_is_refused_and_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Refusal, match="pipe: neither a file") as refused:
        manifest_of(tmp_path)
    assert refused.value.code == ExitCode.USAGE


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
def test_a_file_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    with pytest.raises(Refusal, match="secret: cannot be read"):
        manifest_of(tmp_path)


def test_a_name_is_text_where_it_is_utf8_and_escaped_where_it_is_not() -> None:
    assert path_text("gr\u00fc\u00df\n".encode()) == "gr\u00fc\u00df\n"
    assert path_text(b"a\xff b") == "a\\xff\\x20b"


def test_inside_compares_whole_parts() -> None:
    assert inside(b"a/b", b"a")
    assert inside(b"a", b"a")
    assert not inside(b"ab", b"a")
