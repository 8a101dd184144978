"""Runs in the provider's place: answers as it is told, and says of every byte that reached it."""

import json
import os
import socket
import ssl
import sys
import threading
import time

START = json.loads(sys.stdin.readline())
LOCK = threading.Lock()


def tell(**members):
    with LOCK:
        print(json.dumps(members), flush=True)


def memory_file(text):
    descriptor = os.memfd_create("pem")
    os.write(descriptor, text.encode())
    return f"/proc/self/fd/{descriptor}"


CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(memory_file(START["certificate"]), memory_file(START["key"]))


def event(kind, **members):
    return f"event: {kind}\ndata: {json.dumps({'type': kind, **members})}\n\n".encode()


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def head(status=200, **more):
    headers = {
        "content-type": "text/event-stream",
        "request-id": "req_test_1",
        "transfer-encoding": "chunked",
        **{name.replace("_", "-"): value for name, value in more.items()},
    }
    lines = [f"HTTP/1.1 {status} OK", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"


def answer(connection, scenario, headers, size):
    key = headers.get("x-api-key") or headers.get("authorization", "")
    first = event(
        "message_start",
        message={
            "id": "msg_test_1",
            "model": "claude-opus-5-20250929",
            "usage": {"input_tokens": 7, "output_tokens": 1},
        },
    ) + event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    text = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "MARKER"})
    last = (
        event("content_block_stop", index=0)
        + event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 3})
        + event("message_stop")
    )
    send = connection.sendall
    if scenario == "slow":
        send(head() + chunk(first))
        time.sleep(0.6)
        send(chunk(text + last) + b"0\r\n\r\n")
    elif scenario == "echo-body":
        half = len(key) // 2
        send(head() + chunk(first) + chunk(b"data: before " + key[:half].encode()))
        time.sleep(0.05)
        send(chunk(key[half:].encode() + b" after\n\n") + chunk(last) + b"0\r\n\r\n")
    elif scenario == "echo-header":
        send(head(x_echo=key) + chunk(first + text + last) + b"0\r\n\r\n")
    elif scenario == "encoded":
        send(head(content_encoding="gzip") + chunk(first + text + last) + b"0\r\n\r\n")
    elif scenario == "switch":
        send(b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\nMARKER")
    elif scenario == "cut":
        send(head() + chunk(first + text))
        connection.shutdown(socket.SHUT_RDWR)
    elif scenario == "drop":
        connection.shutdown(socket.SHUT_RDWR)
    elif scenario == "error":
        body = json.dumps({"type": "error", "error": {"type": "overloaded_error"}}).encode()
        send(
            b"HTTP/1.1 529 Overloaded\r\ncontent-type: application/json\r\ncontent-length: %d"
            b"\r\n\r\n%s" % (len(body), body)
        )
    elif scenario == "size":
        body = json.dumps({"type": "message", "size": size, "content": []}).encode()
        send(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s"
            % (len(body), body)
        )
    else:
        send(head() + chunk(first + text) + chunk(last) + b"0\r\n\r\n")


def serve(plain, port):
    tell(accepted=port)
    if port != 443:
        plain.close()
        return
    try:
        connection = CONTEXT.wrap_socket(plain, server_side=True)
        reader = connection.makefile("rb")
        while line := reader.readline():
            method, target, _ = line.decode("latin-1").split(" ")
            headers = {}
            while line := reader.readline().strip():
                name, _, value = line.decode("latin-1").partition(":")
                headers[name.lower()] = value.strip()
            body = reader.read(int(headers.get("content-length", 0)))
            try:
                scenario = json.loads(body).get("metadata", {}).get("user_id", "")
            except ValueError:
                scenario = ""
            tell(method=method, target=target, headers=headers, bytes=len(body))
            answer(connection, scenario, headers, len(body))
    except (OSError, ValueError) as caught:
        tell(broken=type(caught).__name__)


def listen(port):
    server = socket.create_server(("0.0.0.0", port), backlog=64)
    while True:
        plain, _ = server.accept()
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=serve, args=(plain, port), daemon=True).start()


for number in (22, 80, 443):
    threading.Thread(target=listen, args=(number,), daemon=True).start()
time.sleep(0.1)
tell(event="ready")
# Everything that was told before a mark stands before it.
for asked in sys.stdin:
    tell(mark=json.loads(asked)["mark"])
