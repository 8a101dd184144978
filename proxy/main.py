"""The sidecar's entry point.

Standard input: one line of JSON, then nothing; its end is the session's end. Standard output: one
line of JSON, `ready` or `failed`. Secrets come on standard input only and go nowhere from there.
"""

# ruff: noqa: E402 - the search path and the key logs come before the imports

from __future__ import annotations

import sys
from pathlib import Path

# Python is started with -I, which leaves this file's place out of the search path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import asyncio
import contextlib
import json
import os
import signal
import types
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata, util
from typing import Any

# mitmproxy.addons imports every addon there is, a web server among them. Left out, start-up took
# 0.21 s instead of 0.39 s, and 50 MB instead of 70 MB. The one module we use is imported by name.
_found = util.find_spec("mitmproxy")
if _found is None or _found.origin is None:
    raise ImportError("mitmproxy is not installed")
_addons = types.ModuleType("mitmproxy.addons")
_addons.__path__ = [str(Path(_found.origin).parent / "addons")]
sys.modules["mitmproxy.addons"] = _addons
# A key log would let whoever reads it open the session's TLS.
for _name in ("SSLKEYLOGFILE", "MITMPROXY_SSLKEYLOGFILE"):
    os.environ.pop(_name, None)

from mitmproxy import ctx
from mitmproxy.addons.tlsconfig import TlsConfig
from mitmproxy.options import Options

from proxy.addon import Credential, Sidecar
from proxy.authority import make_authority
from proxy.bounds import Prices, read_dollars, read_prices
from proxy.decision import Rule
from proxy.egress import EgressError, EgressLog
from proxy.passage import Listener
from proxy.policy import Policy, load, shipped

SOCKET = Path("/run/recorder/proxy.sock")
LOG = Path("/var/log/recorder/egress.jsonl")
LONGEST_START = 4 * 1024 * 1024
CANARY_HOST = "canary.invalid"


class StartError(Exception):
    """The sidecar cannot start. The message is for the driver; it holds no secret."""


@dataclass(frozen=True)
class Start:
    """What the driver's one line says. The policy's bounds are the session's own already."""

    session: str
    policy: Policy
    prices: Prices = field(repr=False)
    placeholder: str = field(repr=False)
    credential: Credential = field(repr=False)
    upstream_ca: str | None


def read_start(line: bytes) -> Start:
    """Read the first line of standard input, strictly.

    Raises:
        StartError: it is not what it has to be. The text never quotes the line.
    """
    try:
        value = json.loads(line)
    except ValueError as error:
        raise StartError("the first line of standard input is not JSON") from error
    keys = {"session", "policy", "placeholder", "credential", "upstream_ca"}
    own = {"copied", "dollars", "prices"}
    if not isinstance(value, dict) or set(value) - own != keys:
        raise StartError(
            f"the start needs exactly these members: {', '.join(sorted(keys))}; and may have "
            f"{', '.join(sorted(own))}"
        )
    text, authority, credential = value["policy"], value["upstream_ca"], value["credential"]
    if not (isinstance(value["session"], str) and value["session"]):
        raise StartError("session is not a name")
    if not isinstance(value["placeholder"], str):
        raise StartError("placeholder is not a text")
    if not isinstance(authority, str | None) or not isinstance(text, str | None):
        raise StartError("policy and upstream_ca are texts or null")
    if (
        not isinstance(credential, dict)
        or set(credential) != {"kind", "value"}
        or credential["kind"] not in ("api_key", "bearer", "none")
        or not isinstance(credential["value"], str)
        or (credential["kind"] != "none") != bool(credential["value"])
        or not (credential["value"].isascii() and credential["value"].isprintable())
    ):
        raise StartError("credential is {kind: api_key|bearer|none, value: printable ASCII}")
    if credential["kind"] != "none" and len(value["placeholder"]) < 8:
        raise StartError("placeholder is too short to be told from anything else")
    copied = bool(credential["value"]) and credential["value"] == value["placeholder"]
    if copied is not value.get("copied", False):
        raise StartError("placeholder is the credential itself, or is not where it was copied")
    try:
        policy = load(shipped("anthropic") if text is None else text, "policy")
        prices = read_prices(value.get("prices") or {})
        policy = _bound(policy, value.get("dollars"))
    except ValueError as error:
        raise StartError(str(error)) from error
    if policy.bounds.dollars is not None and not prices:
        raise StartError("dollars are bound, and there is no price table to go by")
    return Start(
        session=value["session"],
        policy=policy,
        prices=prices,
        placeholder=value["placeholder"],
        credential=Credential(credential["kind"], credential["value"]),
        upstream_ca=authority,
    )


def _bound(policy: Policy, dollars: object) -> Policy:
    """The policy with the session's own bound, where that is the lower one."""
    if dollars is None:
        return policy
    bounds = policy.bounds
    lowest = min(bound for bound in (bounds.dollars, read_dollars(dollars)) if bound is not None)
    return replace(policy, bounds=replace(bounds, dollars=lowest))


def make_options(start: Start) -> Options:
    """mitmproxy's options, each one that could open a way shut."""
    options = Options()
    TlsConfig().load(options)
    for name, kind, value in (
        ("store_streamed_bodies", bool, False),
        ("connection_strategy", str, "lazy"),
        ("stream_large_bodies", str, ""),
        ("body_size_limit", str, ""),
        ("keep_host_header", bool, True),
        ("proxy_debug", bool, False),
        ("normalize_outbound_headers", bool, True),
        ("validate_inbound_headers", bool, True),
    ):
        options.add_option(name, kind, value, name)
    upstream: str | None = None
    if start.upstream_ca is not None:
        # A file that has no place on any disk.
        descriptor = os.memfd_create("upstream_ca", 0)
        os.write(descriptor, start.upstream_ca.encode())
        upstream = f"/proc/self/fd/{descriptor}"
    options.update(
        rawtcp=False,
        websocket=False,
        # HTTP/1.1 alone: the harness speaks it, heads stay bytes that can be read one way only, and
        # one request at a time is underway on a connection.
        http2=False,
        http3=False,
        ssl_insecure=False,
        upstream_cert=False,
        ssl_verify_upstream_trusted_ca=upstream,
        tcp_timeout=3600,
    )
    return options


async def check_canary(sidecar: Sidecar) -> None:
    """Ask for a host that no policy names, through the socket, and look for its refusal.

    Raises:
        StartError: it was not refused by our rule, or the refusal is not in the log.
    """
    before = sidecar.log.count
    reader, writer = await asyncio.open_unix_connection(SOCKET)
    writer.write(f"CONNECT {CANARY_HOST}:443 HTTP/1.1\r\nHost: {CANARY_HOST}:443\r\n\r\n".encode())
    answer = await asyncio.wait_for(reader.read(4096), 5)
    writer.close()
    lines = LOG.read_bytes().splitlines()
    logged = json.loads(lines[-1]) if len(lines) == before + 1 else {}
    if (
        not answer.startswith(b"HTTP/1.1 403 ")
        or logged.get("kind") != "canary"
        or logged.get("decision") != "refused"
        or logged.get("rule") != Rule.CONNECT_HOST
        or logged.get("asked", {}).get("host") != CANARY_HOST
    ):
        raise StartError("the canary was not refused by the policy: nothing would be confined")


def tell(event: str, **members: Any) -> None:
    """One line to the driver."""
    print(json.dumps({"event": event, **members}), flush=True)


def read_first_line() -> bytes:
    """The first line of standard input and not a byte more."""
    line = bytearray()
    while not line.endswith(b"\n"):
        data = os.read(0, 65536)
        if not data or len(line) > LONGEST_START:
            raise StartError("standard input ended before its first line did")
        line += data
    if line.count(b"\n") != 1:
        raise StartError("standard input holds more than one line")
    return bytes(line)


async def serve(start: Start) -> None:
    """Run until standard input ends or a signal comes; then close the log."""
    loop = asyncio.get_running_loop()
    loop.set_task_factory(asyncio.eager_task_factory)  # type: ignore[attr-defined]
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)

    def lifeline() -> None:
        if not os.read(0, 65536):
            loop.remove_reader(0)
            ended.set()

    loop.add_reader(0, lifeline)
    options = make_options(start)
    ctx.options = options
    tls = TlsConfig()
    tls.certstore, authority = make_authority(start.policy.hosts)
    version = metadata.version("mitmproxy")
    log = EgressLog(LOG, start.session)
    bounds = {
        name: str(bound) if name == "dollars" and bound is not None else bound
        for name, bound in asdict(start.policy.bounds).items()
    }
    opening = {"policy": start.policy.digest, "mitmproxy": version, "bounds": bounds}
    log.append("open", opening, durable=True)
    sidecar = Sidecar(start.policy, log, start.placeholder, start.credential, tls, start.prices)
    listener = Listener(SOCKET, sidecar, options)
    try:
        await listener.open()
        await check_canary(sidecar)
        sidecar.proving = False
        tell("ready", ca=authority, policy=start.policy.digest, mitmproxy=version)
        await ended.wait()
    finally:
        await listener.close()
        with contextlib.suppress(EgressError):
            log.close({"used": sidecar.used.members(priced=bool(start.prices))})


def main() -> int:
    """Start, serve, end. 0: ended as asked; 1: never became ready, and said why."""
    try:
        asyncio.run(serve(read_start(read_first_line())))
    except (StartError, EgressError, OSError) as error:
        tell("failed", reason=str(error))
        return 1
    return 0


if __name__ == "__main__":
    status = main()
    # A look-up may still be underway in a thread; the interpreter would wait for it.
    sys.stdout.flush()
    os._exit(status)
