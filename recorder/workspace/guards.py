"""The guards of a workspace before a session: exits 6, 4, 8 and 9, in that order.

They run the seal's own code, so that what it would remove is what they refuse.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from recorder.plan.declaration import Declaration
from recorder.refusal import ExitCode, Refusal
from recorder.workspace.arms import HISTORY
from recorder.workspace.names import path_text
from recorder.workspace.place import outside_home, require_outside_corpus
from recorder.workspace.seal import Sealing, examine, secrets_of, walk_readable


def guard_workspace(
    workspace: Path,
    *,
    corpus: Path,
    declaration: Declaration,
    probes: Sequence[str],
    out: Path | None = None,
    home: Path | None = None,
) -> None:
    """Refuse a workspace that a session must not get. No engine is asked, nothing is spent.

    6: it or the output directory lies inside the corpus or under the home directory. 4: it
    holds a ``.git``. 8: it holds the instrument. 9: a file names a probe, an answer key or a
    document that names a probe, or cannot be read.
    """
    guard_places(workspace, corpus=corpus, out=out, home=home)
    if not workspace.is_dir():
        raise Refusal(ExitCode.USAGE, f"{workspace}: is no directory; lay an arm into it first")
    guard_history(workspace)
    secrets = secrets_of(corpus, declaration, probes)
    sealing = examine(workspace, secrets, declaration, ExitCode.NAMED)
    _require_sealed(workspace, sealing)


def guard_places(
    workspace: Path, *, corpus: Path, out: Path | None = None, home: Path | None = None
) -> None:
    """Refuse (6) a workspace or an output directory inside the corpus or under ``$HOME``."""
    for path, what in ((workspace, "workspace"), (out, "output directory")):
        if path is not None:
            require_outside_corpus(path, corpus, what)
            outside_home(path, what, home)


def guard_history(workspace: Path) -> None:
    """Refuse (4) a workspace that carries a ``.git`` file or folder at any depth, (9) one with a
    folder that cannot be listed."""
    for found in walk_readable(workspace, ExitCode.NAMED):
        if found.path.rpartition(b"/")[2] == HISTORY:
            raise Refusal(
                ExitCode.MOVED,
                f"{workspace}/{path_text(found.path)}: a live pointer into the history of a "
                "repository, where every answer can be read; copy the tree without it",
            )


def _require_sealed(workspace: Path, sealing: Sealing) -> None:
    if sealing.instrument:
        named = ", ".join(path_text(path) for path in sealing.instrument)
        raise Refusal(
            ExitCode.INSTRUMENT,
            f"{workspace}: still holds the instrument {named}, which every arm removes; "
            "prepare it with `recorder arm` and `recorder seal`",
        )
    reasons = [
        f"{workspace}/{path_text(removal.path)}: {removal.why}; seal the workspace"
        for removal in sealing.removals
    ]
    reasons += [
        f"{workspace}/{path_text(edit.path)}: names {', '.join(edit.pieces)}; seal the workspace"
        for edit in sealing.edits
    ]
    if reasons:
        raise Refusal(ExitCode.NAMED, *reasons)
