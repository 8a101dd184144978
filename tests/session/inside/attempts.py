"""Runs in a session: makes every attempt of a list, one after another, and writes what came of it.

An attempt is {"shell": text} or {"bytes": [base64, ...], "to": "forwarder" | "socket"}; of the
latter "tls" is null or {"name": str or null, "trust": bool}, and says that the first bytes ask for
a tunnel, in which TLS begins before the rest is sent.
"""

import base64
import json
import socket
import ssl
import subprocess
import sys
import time

AT_MOST = 6.0
# A line is written before its answer is sent; that of a connection's end comes just after.
PAUSE = 0.06


def speak(told):
    pieces = [base64.b64decode(piece) for piece in told["bytes"]]
    received = b""
    if told["to"] == "socket":
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(AT_MOST)
        connection.connect("/run/recorder/proxy.sock")
    else:
        connection = socket.create_connection(("127.0.0.1", 3128), AT_MOST)
    with connection:
        connection.sendall(pieces[0])
        tls = told.get("tls")
        if tls is not None:
            while b"\r\n\r\n" not in received:
                piece = connection.recv(65536)
                if not piece:
                    return received
                received += piece
            context = ssl.create_default_context(cafile="/etc/recorder/ca.pem")
            context.check_hostname = False
            if not tls["trust"]:
                context.verify_mode = ssl.CERT_NONE
            connection = context.wrap_socket(connection, server_hostname=tls["name"])
            received = b""
        for piece in pieces[1:]:
            connection.sendall(piece)
        if told.get("end", True) and tls is None:
            connection.shutdown(socket.SHUT_WR)
        while len(received) < 65536:
            piece = connection.recv(65536)
            if not piece:
                break
            received += piece
            if b"}}\n" in received:
                break
    return received


def attempt(told):
    if "shell" in told:
        ran = subprocess.run(
            ["bash", "-c", told["shell"]],
            capture_output=True,
            timeout=AT_MOST,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        return {"code": ran.returncode, "said": (ran.stdout + ran.stderr)[-600:].decode("latin-1")}
    return {"said": speak(told)[:600].decode("latin-1")}


with open(sys.argv[1], encoding="utf-8") as file:
    attempts = json.load(file)
results = []
for told in attempts:
    begun = time.time()
    try:
        came = attempt(told)
    except (OSError, subprocess.TimeoutExpired) as caught:
        came = {"said": "", "error": type(caught).__name__}
    time.sleep(PAUSE)
    results.append({"name": told["name"], "begun": begun, "ended": time.time(), **came})
with open(sys.argv[2], "w", encoding="utf-8") as file:
    json.dump(results, file)
print(len(results), "attempts")
