"""Runs beside the provider: owns every name of the attacks, and says of every byte it is sent.

It resolves any name of `.test` and `.invalid` to itself and the provider's to the provider, listens
on the ports that attacks ask for, and reads every packet of its interface besides.
"""

import json
import os
import socket
import struct
import sys
import threading

PORTS = (21, 22, 23, 25, 53, 80, 443, 3128, 8080, 8443, 9418)
LOCK = threading.Lock()
OWN = socket.gethostbyname(socket.gethostname())
PROVIDER = socket.gethostbyname("api.anthropic.com")


def tell(**members):
    with LOCK:
        print(json.dumps(members), flush=True)


def serve(port):
    listener = socket.create_server(("0.0.0.0", port), backlog=64)
    while True:
        connection, _ = listener.accept()
        connection.settimeout(0.5)
        tell(accepted=port)
        try:
            tell(port=port, bytes=len(connection.recv(65536)))
        except OSError:
            continue
        finally:
            connection.close()


def name_of(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode("latin-1"))
        at += query[at] + 1
    return ".".join(labels), at + 5


def resolve():
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    listener.bind(("0.0.0.0", 53))
    while True:
        query, peer = listener.recvfrom(4096)
        name, end = name_of(query)
        kind = struct.unpack(">H", query[end - 4 : end - 2])[0]
        tell(looked_up=name)
        address = PROVIDER if name == "api.anthropic.com" else OWN
        known = kind == 1 and (address == PROVIDER or name.endswith((".test", ".invalid")))
        head = query[:2] + struct.pack(">5H", 0x8180, 1, int(known), 0, 0)
        body = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x05\x00\x04" + socket.inet_aton(address)
        listener.sendto(head + query[12:end] + (body if known else b""), peer)


def listen():
    """Every packet that is addressed to this container, by kind and port."""
    raw = socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM, socket.htons(0x0800))
    while True:
        packet, origin = raw.recvfrom(65536)
        if origin[2] == socket.PACKET_OUTGOING or socket.inet_ntoa(packet[16:20]) != OWN:
            continue
        begin = (packet[0] & 15) * 4
        port = struct.unpack(">H", packet[begin + 2 : begin + 4])[0]
        # What the provider sends back belongs to the look-up at the start.
        tell(packet=packet[9], to=port, by=socket.inet_ntoa(packet[12:16]))


for number in PORTS:
    threading.Thread(target=serve, args=(number,), daemon=True).start()
for target in (resolve, listen):
    threading.Thread(target=target, daemon=True).start()
tell(event="ready", address=OWN, provider=PROVIDER)
sys.stdin.read()
os._exit(0)
