"""Texts of an arm's tree that a session changed, kept so that a reader sees what changed.

Each once, under the digest that the arm's manifest names: so whoever has the manifest can hold them
to it. At most ``TEXTS`` a session, of at most ``TEXT_BYTES`` each.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from recorder.durable import write_durable
from recorder.workspace.manifest import Entry, Manifest, digest_of, read_blocks

BEFORE = "before"
TEXTS = 1000
# A longer text is named and not compared: difflib's time grows with the square of the lines.
TEXT_BYTES = 1 << 18


def keep_texts(arm: Path, manifest: Manifest, changed: Iterable[Entry], directory: Path) -> None:
    """Keep the arm's own text of each changed file as ``directory/<hex of the digest>``."""
    wanted = [manifest.by_path[entry.path] for entry in changed if entry.path in manifest.by_path]
    for entry in wanted[:TEXTS]:
        target = directory / entry.sha256.removeprefix("sha256:")
        if entry.is_link or entry.size > TEXT_BYTES or target.exists():
            continue
        content = b"".join(read_blocks(os.path.join(os.fsencode(arm), entry.path)))  # noqa: PTH118
        if b"\0" not in content and digest_of(content) == entry.sha256:
            directory.mkdir(mode=0o755, parents=True, exist_ok=True)
            write_durable(target, content)
