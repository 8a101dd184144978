"""Run inside a session: a server that passes itself off as the provider, on loopback.

`python3 fake.py DIRECTORY`: listens on every way in that a turned harness could take (plain HTTP,
TLS, a proxy that answers CONNECT itself, a unix socket), answers whatever is asked as the
Messages API would, with MARK for a text, and writes one line a connection to DIRECTORY/asked.
"""

import json
import os
import socket
import ssl
import sys
import threading

MARK = "an answer of the fake"
PLAIN, SECURE = 8901, 8902
HERE = os.path.dirname(os.path.abspath(__file__))


def events(model):
    message = {
        "id": "msg_fake",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": MARK}},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


class Server:
    def __init__(self, directory):
        self.log = os.path.join(directory, "asked")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(f"{HERE}/fake.pem", f"{HERE}/fake.key")

    def note(self, words):
        with open(self.log, "a") as log:
            log.write(words + "\n")

    def serve(self, listener, way, secure=False):
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.talk, args=(client, way, secure), daemon=True).start()

    def talk(self, client, way, secure):
        self.note(f"{way}: connected")
        try:
            if secure:
                client = self.context.wrap_socket(client, server_side=True)
            self.answer(client, way)
        except OSError as error:
            self.note(f"{way}: {error}")
        finally:
            client.close()

    def answer(self, client, way):
        file = client.makefile("rb")
        while True:
            first = file.readline()
            if not first:
                return None
            method, target = first.split()[:2]
            length = 0
            while line := file.readline().strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            body = file.read(length)
            self.note(f"{way}: {method.decode()} {target.decode()}")
            if method == b"CONNECT":
                client.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                return self.talk(client, f"{way} {target.decode()}", True)
            try:
                asked = json.loads(body)
            except ValueError:
                asked = {}
            if "messages" not in asked:
                content, kind = b"{}", b"application/json"
            else:
                content = "".join(
                    f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
                    for event in events(asked.get("model", "fake"))
                ).encode()
                kind = b"text/event-stream"
            client.sendall(
                b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n%s"
                % (kind, len(content), content)
            )


def main():
    directory = sys.argv[1]
    server = Server(directory)
    ways = [(PLAIN, "plain", False), (SECURE, "secure", True)]
    for port, way, secure in ways:
        listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=server.serve, args=(listener, way, secure), daemon=True).start()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(os.path.join(directory, "fake.sock"))
    listener.listen()
    with open(os.path.join(directory, "ready"), "w") as ready:
        ready.write("ready\n")
    server.serve(listener, "unix")


if __name__ == "__main__":
    main()
