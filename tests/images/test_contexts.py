"""Build contexts: owners and modes as declared, and a digest that moves with every input."""

from __future__ import annotations

import io
import json
import re
import tarfile
from pathlib import Path

import pytest

from recorder.images.build import IMAGES, Entry, Image, Layer, context, image_tag, inputs_digest
from recorder.images.fetch import Fetcher, mirror_lines, silent
from recorder.refusal import Refusal


@pytest.fixture
def image(tmp_path: Path) -> Image:
    dockerfile = tmp_path / "Dockerfile"
    dockerfile.write_text("FROM scratch\nADD tree.tar /\n")
    return Image("example", "Example", dockerfile, lambda _: [])


def members_of(stream: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        return {entry.name: entry for entry in archive}


def test_a_layer_is_a_tar_with_the_declared_owners_and_modes(image: Image) -> None:
    layer = Layer(
        "tree.tar",
        (
            Entry("opt/harness", None, 0o755),
            Entry("opt/harness/claude", b"x" * 1000, 0o711),
            Entry("run/recorder", None, 0o750, uid=990),
        ),
    )
    stream = b"".join(context(image, [layer], {}))
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        assert archive.getnames() == ["Dockerfile", "tree.tar"]
        inner_file = archive.extractfile("tree.tar")
        assert inner_file is not None
        inner = members_of(inner_file.read())
    assert inner["opt/harness/claude"].mode == 0o711
    assert inner["opt/harness/claude"].size == 1000
    assert inner["opt/harness/claude"].uid == 0
    assert inner["opt/harness"].isdir()
    assert (inner["run/recorder"].uid, inner["run/recorder"].gid) == (990, 990)


def test_long_paths_keep_the_layers_declared_size_true(image: Image) -> None:
    # Over 100 bytes a name takes header blocks of its own.
    layer = Layer("tree.tar", (Entry("d" * 90 + "/" + "f" * 90, b"y", 0o644),))
    stream = b"".join(context(image, [layer, Entry("after", b"z", 0o644)], {}))
    assert "after" in members_of(stream)


def test_no_entry_has_mtime_0(image: Image) -> None:
    # mitmproxy never loads an addon whose mtime is 0, and says nothing.
    stream = b"".join(context(image, [Entry("proxy/main.py", b"", 0o644)], {}))
    assert all(entry.mtime > 0 for entry in members_of(stream).values())


def test_labels_are_one_instruction_whatever_they_hold(image: Image) -> None:
    stream = b"".join(context(image, [], {"title": 'a "b" $c', "inputs": "1"}))
    with tarfile.open(fileobj=io.BytesIO(stream)) as archive:
        recipe = archive.extractfile("Dockerfile")
        assert recipe is not None
        assert recipe.read().decode().splitlines()[-1] == r'LABEL inputs="1" title="a \"b\" \$c"'


def test_the_digest_moves_with_content_mode_owner_recipe_and_parent(image: Image) -> None:
    plain = [Entry("a", b"1", 0o644)]
    digests = {
        inputs_digest(image, plain, ""),
        inputs_digest(image, [Entry("a", b"2", 0o644)], ""),
        inputs_digest(image, [Entry("a", b"1", 0o600)], ""),
        inputs_digest(image, [Entry("a", b"1", 0o644, uid=990)], ""),
        inputs_digest(image, [Entry("b", b"1", 0o644)], ""),
        inputs_digest(image, plain, "parent"),
    }
    image.dockerfile.write_text("FROM scratch\n")
    digests.add(inputs_digest(image, plain, ""))
    assert len(digests) == 7


def test_the_digest_holds_still_when_nothing_moves(image: Image) -> None:
    members = [Entry("a", b"1", 0o644)]
    assert inputs_digest(image, members, "p") == inputs_digest(image, members, "p")


def test_a_missing_source_is_refused_by_its_path(image: Image, tmp_path: Path) -> None:
    with pytest.raises(Refusal, match=re.escape(str(tmp_path / "guard.py"))):
        inputs_digest(image, [Entry("guard.py", tmp_path / "guard.py", 0o644)], "")


def test_the_harness_is_pinned_in_one_place_and_locked_without_addresses(project: Path) -> None:
    folder = project / "images" / "session"
    manifest = json.loads((folder / "package.json").read_text())
    lock = json.loads((folder / "package-lock.json").read_text())
    ((package, version),) = manifest["dependencies"].items()
    packages = {name: entry for name, entry in lock["packages"].items() if name}
    assert packages[f"node_modules/{package}"]["version"] == version
    assert all(entry["integrity"].startswith("sha512-") for entry in packages.values())
    assert not [name for name, entry in packages.items() if "resolved" in entry]


def test_every_wheel_is_locked_by_hash_and_no_lock_names_a_host(project: Path) -> None:
    locks = [*project.glob("images/*/*.lock"), project / "tests" / "requirements.lock"]
    assert len(locks) == 4
    for lock in locks:
        text = lock.read_text()
        requirements = re.findall(r"^[a-z0-9][a-z0-9.-]*==", text, re.MULTILINE)
        assert requirements
        # Every requirement line is continued by its hashes.
        assert len(re.findall(r"^[a-z0-9].*\\\n +--hash=sha256:", text, re.MULTILINE)) == len(
            requirements
        )
        assert "://" not in text


def test_the_mirror_is_the_hosts_own_for_every_suite_it_has() -> None:
    lines = mirror_lines("trixie").splitlines()
    assert any(line.endswith(" trixie main") for line in lines)
    assert all(
        re.fullmatch(r"deb (\[\S.*\] )?\S+ trixie(-updates|-security)? main", line)
        for line in lines
    )


def test_what_is_fetched_already_is_not_fetched_again(tmp_path: Path, project: Path) -> None:
    lock = project / "images" / "recorder" / "requirements.lock"
    asked: list[str] = []
    fetcher = Fetcher(tmp_path, asked.append)
    fetched = Fetcher(project / ".build", silent).site(lock)
    (tmp_path / fetched.path.name).write_bytes(b"kept")
    assert fetcher.site(lock).path.read_bytes() == b"kept"
    assert asked == []


def test_an_image_is_named_by_the_recorders_version() -> None:
    assert re.fullmatch(r"recorder-session:\d+\.\d+\.\d+", image_tag("session"))
    assert set(IMAGES) >= {"base", "session", "proxy", "recorder"}
