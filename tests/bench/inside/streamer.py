"""Runs in the provider's place for the bench: every chunk says when it was sent.

Clocks: CLOCK_MONOTONIC, which all containers of one kernel share. One thread a connection. The
request's `metadata.user_id` is "<chunks> <pause in ms>".
"""

import json
import os
import re
import socket
import ssl
import sys
import threading
import time

START = json.loads(sys.stdin.readline())


def memory_file(text):
    descriptor = os.memfd_create("pem")
    os.write(descriptor, text.encode())
    return f"/proc/self/fd/{descriptor}"


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(memory_file(START["certificate"]), memory_file(START["key"]))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WANTED = re.compile(rb'"user_id": ?"(\d+) (\d+)"')


def event(kind, **members):
    data = f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(connection, chunks, pause):
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "msg_1", "model": "claude-opus-5", "usage": usage, "sent": time.monotonic()}
    connection.sendall(HEAD + event("message_start", message=message))
    connection.sendall(
        event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    )
    for _ in range(chunks):
        time.sleep(pause / 1000)
        delta = {"type": "text_delta", "text": "a few words", "sent": time.monotonic()}
        connection.sendall(event("content_block_delta", index=0, delta=delta))
    connection.sendall(
        event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
        + event("message_stop")
        + b"0\r\n\r\n"
    )


def serve(plain):
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        connection = CONTEXT.wrap_socket(plain, server_side=True)
        reader = connection.makefile("rb", 1 << 18)
        while reader.readline():
            length = 0
            while line := reader.readline().strip():
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            body = reader.read(length)
            chunks, pause = WANTED.search(body[-200:]).groups()
            answer(connection, int(chunks), int(pause))
    except OSError:
        return


listener = socket.create_server(("0.0.0.0", 443), backlog=64)
print(
    json.dumps({"event": "ready", "address": socket.gethostbyname(socket.gethostname())}),
    flush=True,
)


def accept():
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()
os._exit(0)
