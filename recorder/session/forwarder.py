"""Copies each connection of a listening socket to the sidecar's unix socket, both ways.

Run by the guard as ``python3 -I -S forwarder.py FD SOCKET`` under its own uid, with no
capability, no environment and no way to the recorded stream. It decides nothing: what passes is
the sidecar's decision. Standard library only: this file is copied into the image.

One loop and no thread: a thread counts as a process of its uid, and 255 connections of one
session once used up what the forwarder might have, which ended it.
"""

from __future__ import annotations

import selectors
import socket
import sys
from collections import deque

CHUNK = 65_536

# What is held for an end that does not read: its other end is not read until there is room.
HELD = 65_536

# A session that opens more has each further one closed at once.
CONNECTIONS = 256

RETRY_SECONDS = 0.02


class End:
    """One socket of a connection, and the bytes that it has still to be given."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.other = self
        self.held = bytearray()
        self.events = 0
        # Whether more can come from it; whether nothing more will be given to it; and whether
        # that was said to it.
        self.reading = True
        self.last = False
        self.shut = False

    def wanted(self) -> int:
        reads = self.reading and len(self.other.held) < HELD
        events = selectors.EVENT_READ if reads else 0
        return events | (selectors.EVENT_WRITE if self.held else 0)

    def take(self) -> None:
        """Read once, and hand on at once what the other end takes."""
        try:
            piece = self.connection.recv(CHUNK)
        except (BlockingIOError, InterruptedError):
            # Nothing there after all.
            return
        except OSError:
            # It is gone: nothing comes from it, and nothing can be given to it.
            self.lose()
            piece = b""
        if piece:
            self.other.held += piece
        else:
            self.reading = False
            self.other.last = True
        self.other.give()

    def give(self) -> None:
        """Write what is held, as far as it goes; half-closed stays half-closed."""
        if self.shut:
            self.held.clear()
            return
        try:
            while self.held:
                del self.held[: self.connection.send(self.held)]
            if self.last:
                self.shut = True
                self.connection.shutdown(socket.SHUT_WR)
        except (BlockingIOError, InterruptedError):
            # It takes no more now: the loop says when it does.
            return
        except OSError:
            # It takes nothing any more; what it has said already is still read.
            self.lose()

    def lose(self) -> None:
        self.held.clear()
        self.last = self.shut = True
        self.other.reading = False


class Forwarder:
    def __init__(self, listener: socket.socket, path: str) -> None:
        self.listener = listener
        self.path = path
        self.selector = selectors.DefaultSelector()
        # Accepted, and not yet taken by the sidecar, whose queue was full.
        self.waiting: deque[socket.socket] = deque()
        self.count = 0
        self.paused = False
        listener.setblocking(False)
        self.selector.register(listener, selectors.EVENT_READ, None)

    def run(self) -> None:
        while True:
            self.turn()

    def turn(self) -> None:
        waits = self.paused or bool(self.waiting)
        for key, events in self.selector.select(RETRY_SECONDS if waits else None):
            end: End | None = key.data
            if end is None:
                self.accept()
                continue
            if end.events == 0:
                # Closed in this same turn, by its other end.
                continue
            if events & selectors.EVENT_WRITE:
                end.give()
            if events & selectors.EVENT_READ and end.wanted() & selectors.EVENT_READ:
                end.take()
            self.settle(end)
        if self.paused:
            self.paused = False
            self.selector.register(self.listener, selectors.EVENT_READ, None)
        while self.waiting and self.join(self.waiting[0]):
            self.waiting.popleft()

    def accept(self) -> None:
        try:
            client, _ = self.listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            # Whoever asked is gone again.
            return
        except OSError:
            # No descriptor or no memory for one more: asked again in a moment, and what is
            # connected goes on.
            self.selector.unregister(self.listener)
            self.paused = True
            return
        if self.count >= CONNECTIONS:
            client.close()
            return
        self.count += 1
        if self.waiting or not self.join(client):
            self.waiting.append(client)

    def join(self, client: socket.socket) -> bool:
        """Connect it to the sidecar, or close it; False where the sidecar's queue is full."""
        sidecar: socket.socket | None = None
        try:
            client.setblocking(False)
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sidecar = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sidecar.setblocking(False)
            sidecar.connect(self.path)
        except BlockingIOError:
            if sidecar is not None:
                sidecar.close()
            return False
        except OSError:
            # No sidecar, no way out: the client sees a closed connection.
            if sidecar is not None:
                sidecar.close()
            client.close()
            self.count -= 1
            return True
        end, other = End(client), End(sidecar)
        end.other, other.other = other, end
        self.settle(end)
        return True

    def settle(self, end: End) -> None:
        """Watch both ends for what they want now, or close both where neither wants anything."""
        ends = (end, end.other)
        done = all(one.shut and not one.held for one in ends)
        for one in ends:
            events = 0 if done else one.wanted()
            if events == one.events:
                continue
            if one.events == 0:
                self.selector.register(one.connection, events, one)
            elif events == 0:
                self.selector.unregister(one.connection)
            else:
                self.selector.modify(one.connection, events, one)
            one.events = events
        if done:
            for one in ends:
                one.connection.close()
            self.count -= 1


def main() -> None:
    Forwarder(socket.socket(fileno=int(sys.argv[1])), sys.argv[2]).run()


if __name__ == "__main__":
    main()
