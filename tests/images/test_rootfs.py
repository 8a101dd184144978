"""A Debian tree loses what tells of the host and gains what maintainer scripts would have made."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.images.rootfs import Rootfs, is_left_out, neutral, read_rootfs
from recorder.refusal import ExitCode, Refusal

DECLARATION = """
suite = "trixie"
packages = ["base-files"]
[links]
"/usr/bin/awk" = "gawk"
[[accounts]]
name = "session"
uid = 1000
count = 2
home = "/session/config"
"""

TREE: dict[str, tuple[bytes, int]] = {
    "./etc/resolv.conf": (b"nameserver 192.0.2.1\n", 0o644),
    "./etc/apt/sources.list.d/0000mirror.list": (b"deb mirror.test trixie main\n", 0o644),
    "./etc/apt/apt.conf.d/99mmdebstrap": (b"Acquire::http::Proxy proxy.test;\n", 0o644),
    "./var/lib/apt/lists/mirror.test_InRelease": (b"lists\n", 0o644),
    "./usr/bin/su": (b"ELF", 0o4755),
    "./usr/bin/wall": (b"ELF", 0o2755),
    "./usr/share/doc/bash/copyright": (b"licence\n", 0o644),
    "./usr/share/doc/bash/README": (b"read me\n", 0o644),
    "./usr/share/man/man1/bash.1.gz": (b"man", 0o644),
    "./usr/share/base-passwd/passwd.master": (b"root:*:0:0:root:/root:/bin/bash\n", 0o644),
    "./usr/share/base-passwd/group.master": (b"root:*:0:\n", 0o644),
    "./usr/share/ca-certificates/mozilla/A.crt": (b"certificate A\n", 0o644),
    "./usr/share/ca-certificates/mozilla/B.crt": (b"certificate B", 0o644),
}


def stream_of(tree: dict[str, tuple[bytes, int]]) -> io.BytesIO:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for name, (content, mode) in tree.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(content), mode, 1_700_000_000
            archive.addfile(entry, io.BytesIO(content))
    stream.seek(0)
    return stream


def rewritten(tree: dict[str, tuple[bytes, int]]) -> dict[str, tuple[tarfile.TarInfo, bytes]]:
    output = io.BytesIO()
    neutral(stream_of(tree), output, read_rootfs(DECLARATION, "rootfs.toml"))
    output.seek(0)
    found = {}
    with tarfile.open(fileobj=output) as archive:
        for entry in archive:
            body = archive.extractfile(entry) if entry.isreg() else None
            found[entry.name] = (entry, body.read() if body is not None else b"")
    return found


def test_nothing_of_the_host_is_left() -> None:
    found = rewritten(TREE)
    everything = b"".join(content for _, content in found.values())
    assert b"192.0.2.1" not in everything
    assert b"mirror.test" not in everything
    assert b"proxy.test" not in everything
    assert found["etc/resolv.conf"][1] == b""
    assert not [name for name in found if name.startswith("var/lib/apt/lists/")]


def test_no_entry_keeps_a_set_id_bit() -> None:
    assert all(entry.mode & 0o6000 == 0 for entry, _ in rewritten(TREE).values())


def test_the_certificate_bundle_is_every_authority_each_on_its_own_line() -> None:
    content = rewritten(TREE)["etc/ssl/certs/ca-certificates.crt"][1]
    assert content == b"certificate A\ncertificate B\n"


def test_accounts_are_the_masters_and_one_for_each_slot() -> None:
    found = rewritten(TREE)
    assert found["etc/passwd"][1].decode().splitlines() == [
        "root:x:0:0:root:/root:/bin/bash",
        "session:x:1000:1000::/session/config:/bin/bash",
        "session1:x:1001:1001::/session/config:/bin/bash",
    ]
    assert "session1:x:1001:" in found["etc/group"][1].decode().splitlines()


def test_links_of_maintainer_scripts_are_made() -> None:
    entry, _ = rewritten(TREE)["usr/bin/awk"]
    assert entry.issym()
    assert entry.linkname == "gawk"


def test_licences_stay_and_other_documentation_goes() -> None:
    found = rewritten(TREE)
    assert "usr/share/doc/bash/copyright" in found
    assert "usr/share/doc/bash/README" not in found
    assert "usr/share/man/man1/bash.1.gz" not in found


@pytest.mark.parametrize("missing", ["ca-certificates", "base-passwd"])
def test_a_tree_without_what_is_made_from_it_is_refused(missing: str) -> None:
    tree = {name: entry for name, entry in TREE.items() if f"/{missing}/" not in name}
    with pytest.raises(Refusal) as refused:
        rewritten(tree)
    assert refused.value.code is ExitCode.MISSING
    assert missing in str(refused.value)


@given(st.sampled_from(["home", "mnt", "boot", "srv", "usr/share/man"]), st.text("ab/", max_size=9))
def test_all_below_a_left_out_directory_is_left_out(directory: str, below: str) -> None:
    assert is_left_out(f"{directory}/{below}".rstrip("/"))


def test_directories_that_the_engine_fills_stay_empty() -> None:
    for directory in ("proc", "dev", "tmp", "var/log"):
        assert not is_left_out(directory)
        assert is_left_out(f"{directory}/anything")


def test_a_broken_declaration_is_refused_by_name() -> None:
    with pytest.raises(Refusal) as refused:
        read_rootfs("suite = ", "images/base/rootfs.toml")
    assert refused.value.code is ExitCode.USAGE
    assert "images/base/rootfs.toml" in str(refused.value)


def test_the_shipped_declarations_are_read(project: Path) -> None:
    for name in ("base", "session"):
        path = project / "images" / name / "rootfs.toml"
        rootfs = read_rootfs(path.read_text(), str(path))
        assert isinstance(rootfs, Rootfs)
        assert list(rootfs.packages) == sorted(rootfs.packages)
