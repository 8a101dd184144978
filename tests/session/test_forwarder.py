"""What passes between a session and its sidecar, and what no number of connections can end."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from recorder.engine.client import Engine
from recorder.session import forwarder
from recorder.session.container import forwarder_uid
from tests.session.stage import open_cell

SECONDS = 10.0


@dataclass(frozen=True)
class Running:
    """A forwarder in a process of its own, and the sidecar's listening socket behind it."""

    process: subprocess.Popen[bytes]
    port: int
    sidecar: socket.socket

    def ask(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port), SECONDS)
        client.settimeout(SECONDS)
        return client

    def answer(self) -> socket.socket:
        taken, _ = self.sidecar.accept()
        taken.settimeout(SECONDS)
        return taken

    def threads(self) -> int:
        return len(list(Path(f"/proc/{self.process.pid}/task").iterdir()))


@contextmanager
def forwarding(directory: Path, *, files: int | None = None, queue: int = 512) -> Iterator[Running]:
    path = str(directory / "proxy.sock")
    with socket.socket(socket.AF_UNIX) as sidecar, socket.socket() as listener:
        sidecar.bind(path)
        sidecar.listen(queue)
        sidecar.settimeout(SECONDS)
        listener.bind(("127.0.0.1", 0))
        listener.listen(512)
        process = subprocess.Popen(
            [
                *(sys.executable, "-I", "-S", forwarder.__file__),
                *(str(listener.fileno()), path),
            ],
            pass_fds=[listener.fileno()],
        )
        if files is not None:
            resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (files, files))
        try:
            yield Running(process, listener.getsockname()[1], sidecar)
        finally:
            process.kill()
            process.wait()


def test_connections_take_no_thread_and_more_than_its_many_are_closed_at_once(
    tmp_path: Path,
) -> None:
    with forwarding(tmp_path) as running, ExitStack() as held:
        for _ in range(forwarder.CONNECTIONS):
            client = held.enter_context(running.ask())
            taken = held.enter_context(running.answer())
        assert running.threads() == 1
        with running.ask() as refused:
            assert refused.recv(1) == b""
        # Those that are connected go on, and one that ends makes room for another.
        client.sendall(b"asked")
        assert taken.recv(5) == b"asked"
        client.close()
        assert taken.recv(1) == b""
        taken.close()
        until = time.monotonic() + SECONDS
        while time.monotonic() < until:
            with running.ask() as client:
                client.sendall(b"x")
                client.shutdown(socket.SHUT_WR)
                running.sidecar.settimeout(0.2)
                try:
                    taken, _ = running.sidecar.accept()
                except TimeoutError:
                    continue
                with taken:
                    assert taken.recv(1) == b"x"
                break
        else:
            pytest.fail("no room was made")


def test_a_half_closed_connection_is_still_answered(tmp_path: Path) -> None:
    with forwarding(tmp_path) as running, running.ask() as client:
        client.sendall(b"all of it")
        client.shutdown(socket.SHUT_WR)
        with running.answer() as taken:
            assert taken.makefile("rb").read() == b"all of it"
            taken.sendall(b"the answer")
        assert client.makefile("rb").read() == b"the answer"


def test_large_bodies_pass_whole_both_ways_at_once(tmp_path: Path) -> None:
    body = bytes(range(256)) * 40_000
    got: dict[str, bytes] = {}

    def exchange(name: str, end: socket.socket) -> None:
        def send() -> None:
            end.sendall(body)
            end.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send, daemon=True)
        sender.start()
        got[name] = end.makefile("rb").read()
        sender.join(SECONDS)

    with forwarding(tmp_path) as running, running.ask() as client, running.answer() as taken:
        other = threading.Thread(target=exchange, args=("sidecar", taken), daemon=True)
        other.start()
        exchange("client", client)
        other.join(SECONDS)
    assert got == {"client": body, "sidecar": body}


def test_an_end_that_does_not_read_holds_up_its_own_connection_and_no_other(
    tmp_path: Path,
) -> None:
    with forwarding(tmp_path) as running, running.ask() as stuck, running.answer():
        stuck.settimeout(0.5)
        # What the kernel and the forwarder hold of it is bounded.
        with pytest.raises(TimeoutError):
            stuck.sendall(bytes(64 << 20))
        with running.ask() as client, running.answer() as taken:
            client.sendall(b"past it")
            assert taken.recv(7) == b"past it"


def test_without_a_descriptor_left_it_goes_on(tmp_path: Path) -> None:
    with forwarding(tmp_path, files=16) as running, ExitStack() as held:
        clients = [held.enter_context(running.ask()) for _ in range(40)]
        with running.answer() as first:
            clients[0].sendall(b"still")
            assert first.recv(5) == b"still"
        for client in clients:
            client.close()
        assert running.process.poll() is None


def test_a_full_queue_of_the_sidecar_is_waited_for(tmp_path: Path) -> None:
    with forwarding(tmp_path, queue=1) as running, ExitStack() as held:
        for number in range(12):
            held.enter_context(running.ask()).sendall(bytes([number]))
        seen = set()
        for _ in range(12):
            with running.answer() as taken:
                seen.add(taken.recv(1))
        assert seen == {bytes([number]) for number in range(12)}


def test_without_a_sidecar_a_connection_is_closed(tmp_path: Path) -> None:
    with forwarding(tmp_path) as running:
        (tmp_path / "proxy.sock").unlink()
        with running.ask() as client:
            assert client.recv(1) == b""


def test_each_slot_has_a_forwarder_uid_of_its_own() -> None:
    uids = {forwarder_uid(uid) for uid in range(1000, 1016)}
    assert len(uids) == 16
    assert not uids & set(range(1000, 1016))


def test_a_forwarder_that_ends_ends_its_session(engine: Engine) -> None:
    argv = ["/usr/bin/python3", "-I", "-c", "import time; time.sleep(60)"]
    files = {"opt/recorder/forwarder.py": (b"raise SystemExit(3)", 0o644)}
    began = time.monotonic()
    with open_cell(engine, "forwarder", argv, files=files) as cell:
        assert cell.end() == 137
        assert cell.outcome["stage"] == "forwarder"
        assert cell.outcome["reason"] == "its forwarder ended with 3"
    assert time.monotonic() - began < 15
