"""The digest of the code that records, as it is installed.

Over every file of the two packages but byte code, so that whoever has a copy of the project can
make it again::

    find proxy recorder -type f ! -path "*/__pycache__/*" | LC_ALL=C sort |
        xargs sha256sum | sha256sum
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import proxy
import recorder

PACKAGES = (proxy, recorder)


def package_digest() -> str:
    """``sha256:<hex>`` of a line ``<hex>  <path>`` a file, sorted by path bytewise."""
    lines = []
    for package in PACKAGES:
        folder = Path(next(iter(package.__path__)))
        for path in folder.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                name = path.relative_to(folder.parent).as_posix()
                lines.append((name, hashlib.sha256(path.read_bytes()).hexdigest()))
    text = "".join(f"{digest}  {name}\n" for name, digest in sorted(lines))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
