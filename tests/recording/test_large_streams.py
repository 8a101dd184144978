"""Lines of many megabytes: every byte kept, in memory that does not grow with the stream."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.recording.rig import PROJECT, environment_of
from tests.stream.streams import init, result

pytestmark = pytest.mark.engine

LINE_BYTES = 30 << 20
TOTAL_BYTES = 64 << 20
MEGABYTE = 1 << 20

# Makes the same bytes as ``stream`` below: two lines of 30 MiB, and the rest to 64 MiB in one.
PROGRAM = f"""python3 -I -c '
import sys
out = sys.stdout.buffer
init, result = open("init", "rb").read(), open("result", "rb").read()
head, tail = b"{{\\"type\\":\\"user\\",\\"x\\":\\"", b"\\"}}\\n"
out.write(init)
left = {TOTAL_BYTES} - len(init) - len(result)
for size in ({LINE_BYTES}, {LINE_BYTES}, left - 2 * {LINE_BYTES}):
    out.write(head + b"z" * (size - len(head) - len(tail)) + tail)
out.write(result)
'"""


def stream() -> bytes:
    head, tail = b'{"type":"user","x":"', b'"}\n'
    left = TOTAL_BYTES - len(init()) - len(result())
    lines = [
        head + b"z" * (size - len(head) - len(tail)) + tail
        for size in (LINE_BYTES, LINE_BYTES, left - 2 * LINE_BYTES)
    ]
    return b"".join((init(), *lines, result()))


def test_64_mebibytes_are_kept_byte_for_byte_in_flat_memory(tmp_path: Path) -> None:
    tree, out = tmp_path / "tree", tmp_path / "out"
    tree.mkdir()
    (tree / "init").write_bytes(init())
    (tree / "result").write_bytes(result())
    ended = subprocess.run(
        [sys.executable, "-m", "tests.recording.measure_memory", tree, out, PROGRAM],
        cwd=PROJECT,
        env=environment_of({}),
        capture_output=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stderr.decode()
    measured = json.loads(ended.stdout)
    assert measured["code"] == 0
    with (out / "large" / "raw.jsonl").open("rb") as raw:
        kept = hashlib.file_digest(raw, "sha256").hexdigest()
    assert (out / "large" / "raw.jsonl").stat().st_size == TOTAL_BYTES
    assert kept == hashlib.sha256(stream()).hexdigest()
    # The driver holds a few reads of the pipe; what judges the stream holds its longest line, as
    # bytes, as text and as what is told of it. A block of that size that was freed may stay in the
    # C library's heap, which made it four of them in half of 16 runs.
    assert measured["streams"] - measured["before"] < 8 * MEGABYTE
    assert measured["event"] - measured["streams"] < 4 * LINE_BYTES + 20 * MEGABYTE
