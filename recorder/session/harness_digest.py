"""The digest of the harness's program, as the session image holds it.

Reading its 400 MB through the engine takes 1.0 s, so what was measured is kept by the image's id,
which is a digest of all that the image holds: under ``$XDG_CACHE_HOME``, else ``~/.cache``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from recorder.engine.client import Engine
from recorder.refusal import ExitCode, Refusal
from recorder.session.harness import HARNESS

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def harness_digest(
    engine: Engine, container: str, image: str, environment: Mapping[str, str] = os.environ
) -> str:
    """``sha256:<hex>`` of the harness in a container of the image. Refusal 12 for no harness."""
    kept = _kept(image, environment)
    if kept is not None:
        try:
            found = kept.read_text("ascii")
        except (OSError, UnicodeDecodeError):
            found = ""  # Not measured before, or not to be read: then it is measured.
        if _DIGEST.fullmatch(found):
            return found
    measured = engine.digest_of_file(container, HARNESS)
    if measured is None:
        raise Refusal(
            ExitCode.CONFINEMENT, f"{HARNESS}: is not in the session image: build it again"
        )
    if kept is not None:
        try:
            kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            part = kept.with_name(f"{kept.name}.{os.getpid()}")
            part.write_text(measured, "ascii")
            part.replace(kept)
        except OSError:
            # A home that cannot be written, as in an image: the next run measures it again.
            return measured
    return measured


def _kept(image: str, environment: Mapping[str, str]) -> Path | None:
    """Where an image's is kept; None for an image by another name than its id."""
    if not _DIGEST.fullmatch(image):
        return None
    cache = environment.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "recorder" / f"harness-{image.removeprefix('sha256:')}"
