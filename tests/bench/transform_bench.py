"""Throughput and peak memory of the transform, on lines of 1 MB and on ordinary ones.

Run as a program it prints one line a case and ends with 1 where a floor is missed. Each case is
a process of its own, so that its peak is its own, interpreter and imports included. The peak is
``VmHWM``: ``ru_maxrss`` outlives an exec, so that a child of a large test run begins at the size
of its parent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT_ROOT))

MEGABYTE = 1_000_000
FLOOR_MEGABYTES_A_SECOND = 150
FIXED_BYTES = 60 * MEGABYTE
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Measured:
    """Bytes read, the longest line in bytes, seconds of wall clock, peak resident bytes."""

    byte_count: int
    longest_line: int
    seconds: float
    peak_bytes: int

    @property
    def megabytes_a_second(self) -> float:
        return self.byte_count / MEGABYTE / self.seconds

    @property
    def memory_bound(self) -> int:
        return 3 * self.longest_line + FIXED_BYTES


def repeated(stream: bytes, byte_count: int) -> Iterator[bytes]:
    """The stream again and again up to about so many bytes, in chunks as a pipe gives them."""
    for _ in range(max(1, byte_count // len(stream))):
        for start in range(0, len(stream), CHUNK_BYTES):
            yield stream[start : start + CHUNK_BYTES]


def one_long_line(byte_count: int) -> Iterator[bytes]:
    """A session whose one Write call is a line of so many bytes."""
    yield b'{"type":"system","subtype":"init","cwd":"/workspace","model":"m"}\n'
    yield b'{"type":"assistant","message":{"id":"m","content":[{"type":"tool_use","id":"t",'
    yield b'"name":"Write","input":{"file_path":"/workspace/a","content":"'
    for _ in range(byte_count // CHUNK_BYTES):
        yield b"w" * CHUNK_BYTES
    yield b'"}}]}}\n'


def measure(chunks: Iterator[bytes], longest_line: int) -> Measured:
    from recorder.transform.produced import ProducedFile
    from recorder.transform.transform import TransformOptions, transform

    options = TransformOptions(
        probe="P",
        session="s",
        document_digest=lambda _path: "",
        produced_file=lambda path: ProducedFile(path, "", ()),
    )
    taken = 0

    def counted() -> Iterator[bytes]:
        nonlocal taken
        for chunk in chunks:
            taken += len(chunk)
            yield chunk

    start = time.perf_counter()
    transform(counted(), options)
    seconds = time.perf_counter() - start
    return Measured(taken, longest_line, seconds, peak_bytes())


def peak_bytes() -> int:
    """The most this process has had resident since it began."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def measured_apart(case: str, byte_count: int) -> Measured:
    """Measure one case in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--case", case, str(byte_count)],
        check=True,
        stdout=subprocess.PIPE,
    )
    return Measured(**json.loads(done.stdout))


def run_case(case: str, byte_count: int) -> Measured:
    if case == "one-long-line":
        return measure(one_long_line(byte_count), byte_count)
    shared = Path(os.environ.get("RECORDER_SHARED") or PROJECT_ROOT.parent / "shared")
    stream = (shared / "captures" / "claude-code" / f"{case}.jsonl").read_bytes()
    return measure(repeated(stream, byte_count), max(map(len, stream.split(b"\n"))))


def main(arguments: list[str]) -> int:
    if arguments[:1] == ["--case"]:
        print(json.dumps(asdict(run_case(arguments[1], int(arguments[2])))))
        return 0
    missed = 0
    cases = (("81-big-lines", 200), ("01-basic", 50), ("one-long-line", 200))
    for case, megabytes in cases:
        measured = measured_apart(case, megabytes * MEGABYTE)
        read = measured.byte_count / MEGABYTE
        peak, bound = measured.peak_bytes / MEGABYTE, measured.memory_bound / MEGABYTE
        print(
            f"transform {case}: {measured.megabytes_a_second:.0f} MB/s over {read:.0f} MB "
            f"(floor {FLOOR_MEGABYTES_A_SECOND}), peak {peak:.0f} MB (bound {bound:.0f})"
        )
        missed += measured.peak_bytes >= measured.memory_bound
        missed += case != "01-basic" and measured.megabytes_a_second < FLOOR_MEGABYTES_A_SECOND
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
