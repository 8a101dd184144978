"""What the sidecar adds to a session's requests, beside the same requests without it.

The same program asks the same scripted provider in turns: straight, and as a session does, through
the forwarder and the sidecar. Figures are medians over all rounds; runs alternate, so that a noisy
machine is noisy for both. Run as a program: ``python tests/bench/proxy_bench.py [ROUNDS]``. It ends
with 1 where a floor is missed.
"""

from __future__ import annotations

import re
import secrets
import statistics
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT_ROOT))

from proxy.policy import load, shipped  # noqa: E402
from recorder.engine.client import Engine, open_engine  # noqa: E402
from recorder.engine.connect import docker_host  # noqa: E402
from recorder.images.build import image_tag  # noqa: E402
from recorder.rehearsal.certificates import make_authority  # noqa: E402
from tests.proxy.construction import (  # noqa: E402
    HOST,
    LABELS,
    Lines,
    RunningSidecar,
    configuration,
    network,
    running,
    sidecar,
)

INSIDE = Path(__file__).parent / "inside"
FORWARDER = PROJECT_ROOT / "recorder" / "session" / "forwarder.py"
ROUNDS = 8
KILOBYTE, MEGABYTE = 1_000, 1_000_000
SIZES = (2 * KILOBYTE, 50 * KILOBYTE, 150 * KILOBYTE, 200 * KILOBYTE)

MOST_CHUNK_SECONDS = 0.002
MOST_FIRST_SECONDS = 0.010
MOST_RESIDENT = 100 * MEGABYTE
MOST_PEAK = 250 * MEGABYTE

# The forwarder as the guard starts it, with a listening socket for its first argument, then the
# program that asks: a session without its guard and its harness.
WITHIN = """
import os, socket, sys
listener = socket.create_server(("127.0.0.1", 3128), backlog=64)
if os.fork() == 0:
    os.dup2(listener.fileno(), 9)
    os.set_inheritable(9, True)
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.execv("/usr/bin/python3", ["python3", "-I", "-S", "-c", {forwarder!r}, "9",
             "/run/recorder/proxy.sock"])
exec({asker!r})
"""


@dataclass
class Asked:
    """Seconds, of all rounds."""

    first: list[float] = field(default_factory=list)
    cold: list[float] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)

    def add(self, answer: dict[str, Any]) -> None:
        self.first += answer["first"]
        self.cold += answer["cold"]
        self.delays += answer["delays"]


def program(source: str, **host: Any) -> dict[str, Any]:
    return {
        "Image": image_tag("proxy"),
        "Entrypoint": ["/usr/bin/python3", "-I", "-c", source],
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "OpenStdin": True,
        "StdinOnce": True,
        "Labels": LABELS,
        "HostConfig": {"LogConfig": {"Type": "none", "Config": {}}, **host},
    }


@contextmanager
def provider(engine: Engine, name: str, on: str) -> Iterator[tuple[str, str]]:
    """A scripted provider: its address, and the certificate to trust."""
    authority = make_authority(HOST)
    made = program((INSIDE / "streamer.py").read_text(), NetworkMode=on)
    made["User"] = "0:0"
    made["NetworkingConfig"] = {"EndpointsConfig": {on: {"Aliases": [HOST]}}}
    with running(engine, name, made) as lines:
        lines.tell({"certificate": authority.certificate_pem, "key": authority.key_pem})
        ready = lines.next()
        assert ready is not None, bytes(lines.errors)
        yield ready["address"], authority.ca_pem


@contextmanager
def asker(engine: Engine, name: str, to: dict[str, str], **host: Any) -> Iterator[Lines]:
    source = (INSIDE / "asker.py").read_text()
    if "direct" not in to:
        source = WITHIN.format(forwarder=FORWARDER.read_text(), asker=source)
    with running(engine, name, program(source, **host)) as lines:
        lines.tell(to)
        assert lines.next() is not None, bytes(lines.errors)
        yield lines


def ask(lines: Lines, size: int, *, rounds: int, chunks: int, letter: str = "") -> dict[str, Any]:
    told = {"connections": 1, "rounds": rounds, "size": size, "chunks": chunks, "pause": 4}
    lines.tell({**told, "letter": letter})
    answer = lines.next(120)
    assert answer is not None, bytes(lines.errors)[-1000:]
    return answer


# As the log does before a request leaves, on the volume that it lies on.
SYNC = """
import os, statistics, time
file = os.open("/var/log/recorder/bench", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
taken = []
for _ in range(40):
    begun = time.monotonic()
    os.write(file, b"x" * 2000)
    os.fdatasync(file)
    taken.append(time.monotonic() - begun)
print(statistics.median(taken))
"""


def disk_seconds(beside: RunningSidecar) -> float:
    """How long a line takes to be on disk: a part of every first byte, and this machine's."""
    command = ["python3", "-I", "-c", SYNC]
    made = beside.engine.api.exec_create(beside.container, command)
    return float(beside.engine.api.exec_start(made["Id"]))


def memory(beside: RunningSidecar) -> tuple[int, int]:
    """Resident bytes now, and at their most."""
    made = beside.engine.api.exec_create(beside.container, ["cat", "/proc/1/status"])
    status = beside.engine.api.exec_start(made["Id"]).decode()
    now, most = (
        int(found[1]) * 1024
        for found in (re.search(rf"{name}:\s+(\d+) kB", status) for name in ("VmRSS", "VmHWM"))
        if found is not None
    )
    return now, most


def session_volume(name: str) -> dict[str, Any]:
    return {
        "NetworkMode": "none",
        "Mounts": [
            {"Type": "volume", "Source": f"{name}-socket", "Target": "/run/recorder",
             "ReadOnly": True, "VolumeOptions": {"NoCopy": True}},
        ],
    }  # fmt: skip


def main() -> int:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    engine = open_engine(docker_host())
    name = f"recorder-check-{secrets.token_hex(4)}"
    missed: list[str] = []

    def hold(what: str, figure: float, most: float, unit: str, scale: float) -> None:
        verdict = "ok" if figure <= most else "MISSED"
        print(f"{what:<52} {figure * scale:9.2f} {unit}  at most {most * scale:g}  {verdict}")
        if figure > most:
            missed.append(what)

    with ExitStack() as stack:
        stack.callback(engine.close)
        on = stack.enter_context(network(engine, f"{name}-network"))
        address, ca = stack.enter_context(provider(engine, f"{name}-provider", on))
        beside = stack.enter_context(sidecar(engine, f"{name}-one", on, configuration(ca)))
        assert beside.said is not None
        straight = stack.enter_context(
            asker(engine, f"{name}-direct", {"direct": address, "ca": ca}, NetworkMode=on)
        )
        through = stack.enter_context(
            asker(engine, f"{name}-through", {"ca": beside.certificate},
                  **session_volume(f"{name}-one"))
        )  # fmt: skip
        asked = {(way, size): Asked() for way in (False, True) for size in SIZES}
        for lines in (straight, through):
            ask(lines, SIZES[0], rounds=2, chunks=5)
        resident = memory(beside)[0]
        for _ in range(rounds):
            for size in SIZES:
                for way, lines in ((False, straight), (True, through)):
                    asked[way, size].add(ask(lines, size, rounds=6, chunks=25))
                if size <= 150 * KILOBYTE:
                    resident = max(resident, memory(beside)[0])
        direct = statistics.median(
            seconds for size in SIZES for seconds in asked[False, size].delays
        )
        proxied = statistics.median(
            seconds for size in SIZES for seconds in asked[True, size].delays
        )
        print(f"{'':52} {'direct':>9} {'through':>9}  ratio   milliseconds, medians")
        print(f"{'a chunk on its way':<52} {direct * 1e3:9.2f} {proxied * 1e3:9.2f} "
              f"{proxied / direct:6.1f}")  # fmt: skip
        first: dict[int, tuple[float, float]] = {}
        for size in SIZES:
            pair = tuple(statistics.median(asked[way, size].first) for way in (False, True))
            first[size] = (pair[0], pair[1])
            cold = [statistics.median(asked[way, size].cold) for way in (False, True)]
            for what, (one, other) in (("first byte", pair), ("the same, connecting", cold)):
                print(f"{f'{what}, a body of {size // KILOBYTE} kB':<52} {one * 1e3:9.2f} "
                      f"{other * 1e3:9.2f} {other / one:6.1f}")  # fmt: skip
        print(f"{'of a first byte, a line on its way to the disk':<52} {'':9} "
              f"{disk_seconds(beside) * 1e3:9.2f}")  # fmt: skip
        hold("delay of a chunk over direct", proxied - direct, MOST_CHUNK_SECONDS, "ms", 1e3)
        for size in SIZES:
            one, other = first[size]
            what = f"first byte over direct, {size // KILOBYTE} kB"
            hold(what, other - one, MOST_FIRST_SECONDS, "ms", 1e3)
        hold("resident, bodies up to 150 kB", resident, MOST_RESIDENT, "MB", 1 / MEGABYTE)
    for what, letter in (("of ASCII", ""), ("with another letter", "\U0001f600")):
        peak = peak_at_the_limit(letter)
        hold(f"peak, a body at the limit {what}", peak, MOST_PEAK, "MB", 1 / MEGABYTE)
    if missed:
        print(f"missed: {', '.join(missed)}")
    return 1 if missed else 0


def peak_at_the_limit(letter: str) -> int:
    """The most that a sidecar holds while a body as long as the policy allows goes through it."""
    engine = open_engine(docker_host())
    name = f"recorder-check-{secrets.token_hex(4)}"
    limit = load(shipped("anthropic"), "anthropic.yaml").limits.body_bytes
    with ExitStack() as stack:
        stack.callback(engine.close)
        on = stack.enter_context(network(engine, f"{name}-network"))
        _, ca = stack.enter_context(provider(engine, f"{name}-provider", on))
        beside = stack.enter_context(sidecar(engine, f"{name}-one", on, configuration(ca)))
        lines = stack.enter_context(
            asker(engine, f"{name}-through", {"ca": beside.certificate},
                  **session_volume(f"{name}-one"))
        )  # fmt: skip
        answer = ask(lines, limit, rounds=2, chunks=1, letter=letter)
        assert limit * 0.98 < answer["size"] <= limit, answer["size"]
        return memory(beside)[1]


if __name__ == "__main__":
    sys.exit(main())
