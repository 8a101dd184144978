"""The hazards of a workspace as a real engine archives them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from recorder.images.build import image_tag
from recorder.workspace.archive import ArchiveReading, Keep, read_archive
from recorder.workspace.comparison import compare
from recorder.workspace.manifest import Manifest, manifest_of
from recorder.workspace.packing import pack

pytestmark = pytest.mark.engine

MEDDLE = r"""
cd /workspace
touch touched && rm sub/gone && echo new > new.md && chmod 755 a.md
ln a.md z-of-old && ln new.md z-of-new && ln -s /etc/passwd out
mkfifo pipe && cp /bin/true suid && chmod 4755 suid
truncate -s 30M sparse
printf x > "$(printf 'q\377\nz')"
mkdir -p .headwater/cache && echo c > .headwater/cache/entry
"""


def after(client: docker.DockerClient, tree: Path, script: str, keep: Keep) -> ArchiveReading:
    """What the engine's archive holds once a session's user ran a script over the tree."""
    container = client.containers.create(
        image_tag("base"),
        ["sh", "-ec", script],
        user="1000:1000",
        network_mode="none",
        labels={"recorder.role": "check"},
    )
    try:
        container.put_archive("/", b"".join(pack(tree, 1000, 1000, prefix="workspace")))
        container.start()
        assert container.wait()["StatusCode"] == 0
        chunks: Iterator[bytes]
        chunks, _ = container.get_archive("/workspace")
        return read_archive(chunks, prefix="workspace", keep=keep)
    finally:
        container.remove(force=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    (root / "sub").mkdir(parents=True)
    (root / "a.md").write_bytes(b"alpha")
    (root / "touched").write_bytes(b"t")
    (root / "sub" / "gone").write_bytes(b"x")
    (root / "link").symlink_to("a.md")
    for name in (b"\xff\xfe", b"n\nl" * 80):
        with open(os.path.join(os.fsencode(root), name), "wb") as file:
            file.write(b"odd")
    return root


def test_a_tree_put_in_and_read_back_is_unchanged(
    engine_client: docker.DockerClient, tree: Path, tmp_path: Path
) -> None:
    before: Manifest = manifest_of(tree)
    reading = after(engine_client, tree, "true", Keep(tmp_path / "kept", before))
    assert reading.entries == before.entries
    assert not (tmp_path / "kept").exists()


def test_everything_a_session_can_do_to_its_tree_is_told_apart(
    engine_client: docker.DockerClient, tree: Path, tmp_path: Path
) -> None:
    before = manifest_of(tree)
    keep = Keep(tmp_path / "kept", before, arm=tree)
    changes = compare(before, after(engine_client, tree, MEDDLE, keep))
    assert [entry.path for entry in changes.added] == [
        b"new.md",
        b"q\xff\nz",
        b"sparse",
        b"z-of-new",
        b"z-of-old",
    ]
    assert changes.changed == ()
    assert [entry.path for entry in changes.mode_changed] == [b"a.md"]
    assert changes.removed == (b"sub/gone",)
    assert [item.path for item in changes.excluded] == [b".headwater/cache/entry"]
    assert [item.path for item in changes.left] == [b"out", b"pipe", b"suid"]
    assert changes.whole
    assert all(keep.path_of(entry.sha256).is_file() for entry in changes.produced)


def test_a_file_of_four_gigabytes_is_named_and_not_received(
    engine_client: docker.DockerClient, tree: Path, tmp_path: Path
) -> None:
    before = manifest_of(tree)
    keep = Keep(tmp_path / "kept", before)
    changes = compare(before, after(engine_client, tree, "truncate -s 4G /workspace/huge", keep))
    assert [item.path for item in changes.not_read] == [b"huge"]
    assert changes.stopped is not None
    assert changes.removed is None
    assert not changes.whole


DEEP = """
import os
os.chdir("/workspace")
for _ in range(20):
    os.mkdir("d" * 250)
    os.chdir("d" * 250)
open("produced", "w").write("x")
"""


def test_a_file_too_deep_for_the_engine_leaves_the_workspace_not_read_whole(
    engine_client: docker.DockerClient, tree: Path, tmp_path: Path
) -> None:
    before = manifest_of(tree)
    keep = Keep(tmp_path / "kept", before)
    reading = after(engine_client, tree, f"python3 -c '{DEEP}'", keep)
    changes = compare(before, reading)
    assert changes.produced == ()
    assert changes.not_read
    assert not changes.whole
