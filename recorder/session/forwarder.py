"""Copies each connection of a listening socket to the sidecar's unix socket, both ways.

Run by the guard as ``python3 -I -S forwarder.py FD SOCKET`` under its own uid, with no
capability, no environment and no way to the recorded stream. It decides nothing: what passes is
the sidecar's decision. Standard library only: this file is copied into the image.
"""

from __future__ import annotations

import socket
import sys
import threading

CHUNK = 262_144


def copy(source: socket.socket, target: socket.socket) -> None:
    """Copy until the source ends, then say so to the target: half-closed stays half-closed."""
    try:
        while piece := source.recv(CHUNK):
            target.sendall(piece)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # One side is gone, so nothing more can be copied: end the other side too, so that the
        # reader on it does not wait for bytes that cannot come.
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                # Already closed by its peer.
                continue


def serve(client: socket.socket, path: str) -> None:
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sidecar:
        try:
            sidecar.connect(path)
        except OSError:
            # No sidecar, no way out: the client sees a closed connection.
            return
        upward = threading.Thread(target=copy, args=(client, sidecar), daemon=True)
        upward.start()
        copy(sidecar, client)
        upward.join()


def main() -> None:
    listener = socket.socket(fileno=int(sys.argv[1]))
    while True:
        client, _ = listener.accept()
        threading.Thread(target=serve, args=(client, sys.argv[2]), daemon=True).start()


if __name__ == "__main__":
    main()
