"""The commands that a page shows, run as written."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

_BLOCK = re.compile(r"^```bash\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks_of(page: Path) -> list[str]:
    return _BLOCK.findall(page.read_text())


def run_block(
    project: Path, block: str, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """One block, which ends where a command of it fails, also inside of a pipe."""
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=project,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
