"""The example batch, recorded once for all who look at one: each probe once in each arm."""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from tests.batch.test_batch import batch_file
from tests.recording.rig import recorder


@functools.cache
def recorded_batch() -> Path:
    """Where it lies. Nobody may change it: take a copy."""
    directory = Path(tempfile.mkdtemp(prefix="recorder-report-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    out = directory / "out"
    ran = recorder("batch", "run", batch_file(directory), "--out", out)
    assert ran.code == 0, ran.err
    return out
