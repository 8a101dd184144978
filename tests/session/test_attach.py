"""An engine that breaks a connection is said to have stopped answering, and never in silence."""

from __future__ import annotations

import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from recorder.refusal import ExitCode, Refusal
from recorder.session.attach import Attachment, attach
from recorder.session.frames import Demultiplexer

RESET = struct.pack("ii", 1, 0)


@pytest.fixture
def broken() -> Iterator[Attachment]:
    """An attachment whose engine reset the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        mine = socket.create_connection(listener.getsockname())
        theirs, _ = listener.accept()
        theirs.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        theirs.close()
        with Attachment(mine, Demultiplexer(), deque()) as attachment:
            yield attachment


def until_it_breaks(attachment: Attachment) -> None:
    # Where the peer's end is seen only after the first write.
    for _ in range(3):
        attachment.send(b"words")


@pytest.mark.parametrize("use", [Attachment.read, until_it_breaks])
def test_a_connection_that_breaks_is_a_refusal(
    use: Callable[[Attachment], object], broken: Attachment
) -> None:
    with pytest.raises(Refusal) as refused:
        use(broken)
    assert refused.value.code == ExitCode.MISSING
    assert "the engine stopped answering" in refused.value.reasons[0]


def test_a_bounded_wait_is_no_refusal() -> None:
    mine, theirs = socket.socketpair()
    mine.settimeout(0.01)
    attachment = Attachment(mine, Demultiplexer(), deque())
    with theirs, attachment, pytest.raises(TimeoutError):
        attachment.read()


def test_an_engine_that_is_not_there_or_hangs_up_is_a_refusal(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with pytest.raises(Refusal) as refused:
        attach(f"unix://{path}", "container")
    assert refused.value.code == ExitCode.MISSING
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0)
        # Nobody answers within the bound.
        with pytest.raises(Refusal) as refused:
            attach(f"unix://{path}", "container", timeout=0.05)
    assert refused.value.code == ExitCode.MISSING
    assert "as it was opened" in refused.value.reasons[0]
