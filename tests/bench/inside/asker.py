"""Runs in the session's place for the bench: asks, and times the first byte and every chunk.

A line of standard input is {"connections", "rounds", "size", "chunks", "pause", "letter"}; a line
of standard output has the seconds of each. The first line says where to: {"direct": address} or
{"ca": PEM}, the latter by way of the forwarder, as the harness goes.
"""

import json
import re
import socket
import ssl
import sys
import time

HOST = "api.anthropic.com"
TO = json.loads(sys.stdin.readline())
SENT = re.compile(rb'"sent": ([0-9.]+)')


def open_connection():
    context = ssl.create_default_context(cadata=TO["ca"])
    if "direct" in TO:
        plain = socket.create_connection((TO["direct"], 443), 20)
    else:
        plain = socket.create_connection(("127.0.0.1", 3128), 20)
        plain.sendall(f"CONNECT {HOST}:443 HTTP/1.1\r\nHost: {HOST}:443\r\n\r\n".encode())
        told = b""
        while b"\r\n\r\n" not in told:
            told += plain.recv(4096)
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return context.wrap_socket(plain, server_hostname=HOST)


def body_of(size, chunks, pause, letter):
    """A body as long as is wanted, in results of a tool of some 20 kB, which is how bodies grow."""
    text = "A line of a file, as a tool shows it, with 'quotes' and tabs.\t\n" * 300
    messages = []
    document = {
        "model": "claude-opus-5",
        "max_tokens": 5,
        "stream": True,
        "messages": messages,
        "metadata": {"user_id": f"{chunks} {pause}"},
    }
    if letter:
        # One letter beyond ASCII makes Python hold the whole text in 4 bytes a letter.
        messages.append({"role": "user", "content": letter})
    length = len(json.dumps(document))
    one = {"content": [{"type": "text", "text": text}]}
    each = len(json.dumps({"role": "assistant", **one})) + 2
    messages += (
        {"role": ("user", "assistant")[number % 2], **one}
        for number in range(max(size - length - 100, 0) // each)
    )
    missing = size - len(json.dumps(document)) - 80
    if missing > 0:
        messages.append({"role": "user", "content": [{"type": "text", "text": "x" * missing}]})
    return json.dumps(document, ensure_ascii=False).encode()


def ask(connection, body):
    """Seconds to the first byte, and of each chunk on its way."""
    head = (
        f"POST /v1/messages HTTP/1.1\r\nHost: {HOST}\r\n"
        "x-api-key: sk-placeholder-of-the-session\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    begun = time.monotonic()
    connection.sendall(head.encode() + body)
    first, delays, received = None, [], b""
    while b"0\r\n\r\n" not in received[-200:]:
        piece = connection.recv(65536)
        now = time.monotonic()
        if not piece:
            raise SystemExit(f"cut after {received[:300]!r}")
        first = first or now - begun
        delays += [now - float(sent) for sent in SENT.findall(piece)]
        received += piece
    if not received.startswith(b"HTTP/1.1 200"):
        raise SystemExit(repr(received[:300]))
    return first, delays


print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    body = body_of(told["size"], told["chunks"], told["pause"], told["letter"])
    firsts, delays, cold = [], [], []
    for _ in range(told["connections"]):
        begun = time.monotonic()
        connection = open_connection()
        opening = time.monotonic() - begun
        for number in range(told["rounds"]):
            first, chunks = ask(connection, body)
            (cold if number == 0 else firsts).append(first + (opening if number == 0 else 0))
            delays += chunks[1:]
        connection.close()
    answer = {"size": len(body), "first": firsts, "cold": cold, "delays": delays}
    print(json.dumps(answer), flush=True)
