"""Runs in the sidecar's image: puts bytes to the sidecar's own HTTP reader and hooks, sans-IO.

A line of standard input is {"tunnel": bool, "pieces": [base64, ...]}: the bytes of a session as
they arrive, inside an open tunnel or before one. A line of standard output says what came of them:
how far the connection was let, the request that would have left as it was read, what was answered,
the log's lines, and the exception if one was raised.
"""

import base64
import collections
import json
import sys
import time

sys.path.insert(0, "/opt/recorder")

from mitmproxy.connection import Client, ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http import HTTPMode

import proxy.main
from proxy.addon import Confinement, Credential, Sidecar
from proxy.decision import ConnectFacts, HelloFacts
from proxy.layers import http_layer
from proxy.policy import load, shipped

HOST = "api.anthropic.com"
START = json.dumps(
    {
        "session": "s",
        "policy": None,
        "placeholder": "placeholder",
        "credential": {"kind": "api_key", "value": "sk-real-credential"},
        "upstream_ca": None,
    }
)
OPTIONS = proxy.main.make_options(proxy.main.read_start(START.encode()))
POLICY = load(shipped("anthropic"), "policy")


class Log:
    size = 0

    def __init__(self):
        self.lines = []

    def append(self, kind, members, **_):
        self.lines.append({"kind": kind, **members})


class LeftError(Exception):
    """A connection to the provider would be opened now."""


def run(tunnel, pieces):
    log, closed, answered = Log(), [], []
    sidecar = Sidecar(POLICY, log, "placeholder", Credential("api_key", "sk-real-credential"), None)
    sidecar.proving = False
    confinement = Confinement(sidecar, 1, lambda: closed.append(True), lambda _: None)
    client = Client(
        peername=("session", 1),
        sockname=("session", 1),
        timestamp_start=time.time(),
        state=ConnectionState.OPEN,
    )
    context = Context(client, OPTIONS)
    read = []
    mode = HTTPMode.regular
    if tunnel:
        mode = HTTPMode.transparent
        confinement.connect = ConnectFacts(HOST, 443)
        confinement.hello = HelloFacts(HOST, HOST, (0,))
        context.server.address = (HOST, 443)
        context.server.tls = True
    layer = http_layer(context, mode, confinement.admit, confinement.explain, confinement.progress)

    def handle(event):
        waiting = collections.deque([event])
        while waiting:
            for command in layer.handle_event(waiting.popleft()):
                answer = obey(command)
                if answer is not None:
                    waiting.append(answer)

    def obey(command):
        if isinstance(command, commands.StartHook):
            if command.name == "request":
                request = command.args()[0].request
                read[:] = [
                    [
                        request.data.method.decode("latin-1"),
                        request.data.path.decode("latin-1"),
                        [
                            [n.decode("latin-1"), v.decode("latin-1")]
                            for n, v in request.headers.fields
                        ],
                        base64.b64encode(request.raw_content or b"").decode(),
                    ]
                ]
            if command.name == "next_layer":
                # What comes inside a tunnel is TLS, which is not this reader's business.
                raise LeftError
            getattr(confinement, command.name)(*command.args())
            if command.blocking:
                return events.HookCompleted(command)
        elif isinstance(command, commands.OpenConnection):
            raise LeftError
        elif isinstance(command, commands.SendData):
            answered.append(command.data)
        elif isinstance(command, commands.CloseConnection):
            closed.append(True)
            client.state = ConnectionState.CLOSED
        return None

    error = None
    try:
        handle(events.Start())
        for piece in pieces:
            if closed:
                break
            handle(events.DataReceived(client, piece))
        if not closed:
            client.state &= ~ConnectionState.CAN_READ
            handle(events.ConnectionClosed(client))
    except LeftError:
        pass
    except Exception as caught:  # noqa: BLE001 - whatever it was, a test fails for it
        error = repr(caught)
    return {
        "sent": confinement.sent is not None,
        "connected": not tunnel and confinement.connect is not None,
        "read": read[0] if read and confinement.sent is not None else None,
        "answered": base64.b64encode(b"".join(answered)).decode(),
        "lines": log.lines,
        "closed": bool(closed),
        "error": error,
    }


print(json.dumps({"event": "ready"}), flush=True)
for line in sys.stdin:
    told = json.loads(line)
    answer = run(told["tunnel"], [base64.b64decode(piece) for piece in told["pieces"]])
    print(json.dumps(answer), flush=True)
