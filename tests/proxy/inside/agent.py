"""Runs in the session's place: does on the sidecar's socket what the tests tell it, byte for byte.

A line of standard input is a list of steps on one connection; a line of standard output is what
came of it. Steps: {"send": base64}, {"read": until base64 or null for the end, "seconds": s},
{"tls": {"name": str or null, "alpn": [...], "ca": PEM or null}}, {"pause": s}, {"shut": true}.
"""

import base64
import json
import socket
import ssl
import sys
import threading
import time

LOCK = threading.Lock()


def run(number, steps):
    received, times, error = [], [], None
    try:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(10)
        connection.connect("/run/recorder/proxy.sock")
        begun = time.monotonic()
        for step in steps:
            if "send" in step:
                connection.sendall(base64.b64decode(step["send"]))
            elif "tls" in step:
                told = step["tls"]
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
                context.check_hostname = False
                context.verify_mode = ssl.CERT_NONE
                if told.get("ca"):
                    context.load_verify_locations(cadata=told["ca"])
                    context.verify_mode = ssl.CERT_REQUIRED
                    context.check_hostname = told["name"] is not None
                if told.get("alpn"):
                    context.set_alpn_protocols(told["alpn"])
                connection = context.wrap_socket(connection, server_hostname=told["name"])
                received.append((connection.selected_alpn_protocol() or "").encode())
                times.append(time.monotonic() - begun)
            elif "read" in step:
                until = base64.b64decode(step["read"]) if step["read"] is not None else None
                connection.settimeout(step.get("seconds", 10))
                received.append(b"")
                times.append(0.0)
                while until is None or until not in received[-1]:
                    piece = connection.recv(65536)
                    if not piece:
                        break
                    received[-1] += piece
                times[-1] = time.monotonic() - begun
            elif "pause" in step:
                time.sleep(step["pause"])
            elif "shut" in step:
                connection.shutdown(socket.SHUT_WR)
        connection.close()
    except OSError as caught:
        error = type(caught).__name__
    answer = {
        "number": number,
        "received": [base64.b64encode(each).decode() for each in received],
        "times": times,
        "error": error,
    }
    with LOCK:
        print(json.dumps(answer), flush=True)


for line in sys.stdin:
    told = json.loads(line)
    threading.Thread(target=run, args=(told["number"], told["steps"])).start()
