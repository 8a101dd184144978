"""Where a workspace and an output directory may lie."""

from __future__ import annotations

from pathlib import Path

from recorder.refusal import ExitCode, Refusal


def within(path: Path, folder: Path) -> bool:
    """Whether a path is a folder or lies below it, both as the file system resolves them."""
    return path.resolve().is_relative_to(folder.resolve())


def require_outside_corpus(path: Path, corpus: Path, what: str) -> None:
    """Refuse (6) a path inside the corpus: a file there moves the tree digest of the plan."""
    if within(path, corpus):
        raise Refusal(
            ExitCode.PLACE,
            f"{path}: the {what} lies inside the corpus {corpus}, where it moves the `tree` "
            "digest; choose a directory outside of it",
        )


def outside_home(path: Path, what: str = "output directory", home: Path | None = None) -> None:
    """Refuse (6) a path under ``$HOME`` (``home`` where given)."""
    lair = Path.home() if home is None else home
    if within(path, lair):
        raise Refusal(
            ExitCode.PLACE,
            f"{path}: the {what} lies under the home directory {lair}; "
            "choose one outside of it, such as a directory under /var/tmp",
        )
