"""The provider as a process: TLS, failures as they look on the wire, and when it ends."""

from __future__ import annotations

import http.client
import json
import re
import select
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from recorder.rehearsal.certificates import Authority, make_authority
from recorder.rehearsal.script import credential
from tests.rehearsal.strict_client import Assembly, assemble, split_events

SCRIPT = """
PROBE-T-plain:
  - content: [{text: "I look."}, {tool_use: {name: Bash, input: {command: "ls {workspace}"}}}]
  - content: [{thinking: "I know."}, {text: "42"}]
PROBE-T-429:
  - failures: [{status: 429, retry_after: 2, times: 2}, {status: 529}]
    content: [{text: done}]
PROBE-T-credit:
  - failures: [{status: credit, times: always}]
    content: [{text: done}]
PROBE-T-cut:
  - failures: [{cut: before}, {cut: middle}, {error_event: overloaded_error}]
    content: [{text: "a text that is long enough to be cut in the middle of it"}]
PROBE-T-stall:
  - failures: [{stall: 0.4}]
    content: [{text: "a text that is long enough to be cut in the middle of it"}]
PROBE-T-delay:
  - delay: 0.4
    content: [{text: late}]
"""


class Running:
    """A provider process and how to speak with it."""

    def __init__(self, process: subprocess.Popen[bytes], port: int, authority: Authority) -> None:
        self.process = process
        self.port = port
        self.trust = ssl.create_default_context(cadata=authority.ca_pem)

    def connection(self, name: str = "localhost") -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(name, self.port, timeout=10, context=self.trust)

    def ask(
        self,
        probe: str,
        session: str = "L1-campaign-present-p1-r1",
        *,
        path: str = "/v1/messages?beta=true",
        method: str = "POST",
        answered: int = 0,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> tuple[int, http.client.HTTPMessage, bytes]:
        messages: list[dict[str, Any]] = [{"role": "user", "content": "the task"}]
        for _ in range(answered):
            messages.append({"role": "assistant", "content": "a"})
            messages.append({"role": "user", "content": "b"})
        body = {
            "model": "claude-sonnet-4-5",
            "stream": True,
            "tools": [{"name": "Bash"}],
            "messages": messages,
            **members,
        }
        given = {"x-api-key": credential(probe, session)} if headers is None else headers
        with closing(self.connection()) as connection:
            connection.request(method, path, json.dumps(body), given)
            with connection.getresponse() as response:
                return response.status, response.headers, response.read()

    def assembled(self, probe: str, **members: Any) -> Assembly:
        status, _, body = self.ask(probe, **members)
        assert status == 200
        return assemble(split_events(body))


def start(
    first_line: bytes, *options: str
) -> tuple[subprocess.Popen[bytes], dict[str, Any] | None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "recorder.rehearsal", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(first_line + b"\n")
    process.stdin.flush()
    line = process.stdout.readline()
    return process, json.loads(line) if line else None


def end(process: subprocess.Popen[bytes]) -> None:
    if process.stdin is not None and not process.stdin.closed:
        process.stdin.close()
    process.wait(10)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


@pytest.fixture(scope="module")
def authority() -> Authority:
    return make_authority("localhost")


def start_line(authority: Authority, **members: Any) -> bytes:
    given = {"certificate": authority.certificate_pem, "key": authority.key_pem, "script": SCRIPT}
    return json.dumps({**given, **members}).encode()


@pytest.fixture(scope="module")
def provider(authority: Authority) -> Iterator[Running]:
    process, ready = start(start_line(authority), "--host", "127.0.0.1", "--port", "0")
    assert ready is not None
    assert ready["event"] == "ready"
    yield Running(process, ready["port"], authority)
    end(process)


def test_a_streamed_session_of_two_turns(provider: Running) -> None:
    first = provider.assembled("PROBE-T-plain")
    assert first.whole
    assert first.message is not None
    assert first.message["model"] == "claude-sonnet-4-5-20250929"
    assert first.message["content"][1]["input"] == {"command": "ls /workspace"}
    second = provider.assembled("PROBE-T-plain", answered=1)
    assert second.message is not None
    assert [block["type"] for block in second.message["content"]] == ["thinking", "text"]
    assert second.message["stop_reason"] == "end_turn"


def test_an_answer_that_is_not_streamed_is_the_same_message(provider: Running) -> None:
    status, headers, body = provider.ask("PROBE-T-plain", stream=False)
    assert status == 200
    assert headers["content-type"] == "application/json"
    message = json.loads(body)
    assert message["id"].startswith("msg_rehearsal")
    assert message["stop_reason"] == "tool_use"


def test_every_answer_has_a_request_id_of_its_own(provider: Running) -> None:
    ids = [provider.ask("PROBE-T-plain", path=path)[1]["request-id"] for path in ("/v1/messages",
           "/v1/messages/count_tokens", "/api/oauth/profile")]  # fmt: skip
    assert all(re.fullmatch(r"req_rehearsal[0-9a-f]{20}", given) for given in ids)
    assert len(set(ids)) == 3


def test_tokens_are_counted(provider: Running) -> None:
    status, _, body = provider.ask("PROBE-T-plain", path="/v1/messages/count_tokens?beta=true")
    assert status == 200
    assert json.loads(body)["input_tokens"] > 10


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", "/v1/messages"), ("POST", "/v1/files"), ("POST", "/api/claude_code/settings")],
)
def test_every_other_path_is_not_found_in_the_provider_s_shape(
    provider: Running, method: str, path: str
) -> None:
    status, _, body = provider.ask("PROBE-T-plain", method=method, path=path)
    assert status == 404
    error = json.loads(body)
    assert (error["type"], error["error"]["type"]) == ("error", "not_found_error")


@pytest.mark.parametrize(
    "headers", [{}, {"x-api-key": "sk-ant-api03-real"}, {"authorization": "Bearer sk-ant-oat01"}]
)
def test_a_credential_of_no_rehearsal_is_refused(
    provider: Running, headers: dict[str, str]
) -> None:
    status, _, body = provider.ask("", headers=headers)
    assert status == 401
    assert json.loads(body)["error"]["type"] == "authentication_error"
    assert b"sk-ant" not in body


def test_a_bearer_token_says_who_asks_too(provider: Running) -> None:
    headers = {"authorization": f"Bearer {credential('PROBE-T-plain', 's')}"}
    assert provider.ask("", headers=headers)[0] == 200


def test_a_probe_that_the_script_does_not_name_is_refused(provider: Running) -> None:
    status, _, body = provider.ask("PROBE-T-other")
    assert status == 400
    assert "PROBE-T-other" in json.loads(body)["error"]["message"]


def test_a_body_that_is_no_request_is_refused_and_the_connection_goes_on(
    provider: Running,
) -> None:
    headers = {"x-api-key": credential("PROBE-T-plain", "s")}
    with closing(provider.connection()) as connection:
        for body, expected in ((b"{", 400), (b"{}", 400)):
            connection.request("POST", "/v1/messages", body, headers)
            with connection.getresponse() as response:
                assert response.status == expected
                assert json.loads(response.read())["error"]["type"] == "invalid_request_error"


def test_a_request_without_tools_gets_a_short_text_and_moves_nothing(provider: Running) -> None:
    side = provider.assembled("PROBE-T-429", session="side", tools=[])
    assert side.message is not None
    assert [block["type"] for block in side.message["content"]] == ["text"]
    assert provider.ask("PROBE-T-429", session="side")[0] == 429


def test_failures_come_in_order_with_the_headers_of_a_retry(provider: Running) -> None:
    answers = [provider.ask("PROBE-T-429", session="in order") for _ in range(4)]
    assert [status for status, _, _ in answers] == [429, 429, 529, 200]
    assert answers[0][1]["retry-after"] == "2"
    assert answers[0][1]["x-should-retry"] == "true"
    kinds = [json.loads(body)["error"]["type"] for _, _, body in answers[:3]]
    assert kinds == ["rate_limit_error", "rate_limit_error", "overloaded_error"]


def test_failures_are_counted_for_each_probe_session_and_run_of_it(provider: Running) -> None:
    assert provider.ask("PROBE-T-429", session="one")[0] == 429
    assert provider.ask("PROBE-T-429", session="two")[0] == 429
    with pytest.raises((http.client.HTTPException, OSError)):
        provider.ask("PROBE-T-cut", session="one")
    key = credential("PROBE-T-429", "one")
    statuses = [
        provider.ask("", headers={"x-api-key": key, "x-claude-code-session-id": "again"})[0]
        for _ in range(4)
    ]
    assert statuses == [429, 429, 529, 200]


def test_a_failure_for_ever_never_ends(provider: Running) -> None:
    for _ in range(3):
        status, headers, body = provider.ask("PROBE-T-credit")
        assert status == 400
        assert headers["x-should-retry"] == "false"
        assert "credit balance" in json.loads(body)["error"]["message"]


def test_a_cut_before_the_answer_then_one_inside_it_then_an_error_event(
    provider: Running,
) -> None:
    # Nothing at all is sent, and TLS ends without its own goodbye.
    with pytest.raises((http.client.RemoteDisconnected, ssl.SSLEOFError, ConnectionResetError)):
        provider.ask("PROBE-T-cut")
    with pytest.raises((http.client.IncompleteRead, ssl.SSLEOFError, ConnectionResetError)):
        provider.ask("PROBE-T-cut")
    interrupted = provider.assembled("PROBE-T-cut")
    assert interrupted.error == {"type": "overloaded_error", "message": "Overloaded"}
    assert interrupted.open is not None
    assert provider.assembled("PROBE-T-cut").whole


def test_a_cut_stream_has_shown_the_half_of_it(provider: Running) -> None:
    with pytest.raises((http.client.HTTPException, OSError)):
        provider.ask("PROBE-T-cut", "half")
    with pytest.raises(http.client.IncompleteRead) as cut:
        provider.ask("PROBE-T-cut", "half")
    assembly = assemble(split_events(cut.value.partial))
    assert assembly.open is not None
    assert "".join(assembly.pieces) == "a text that is long enou"
    assert not assembly.stopping


def test_a_stall_is_silence_and_then_the_end(provider: Running) -> None:
    began = time.monotonic()
    with pytest.raises((http.client.IncompleteRead, ssl.SSLEOFError, ConnectionResetError)):
        provider.ask("PROBE-T-stall")
    assert 0.4 <= time.monotonic() - began < 5


def test_a_delayed_answer_is_whole(provider: Running) -> None:
    began = time.monotonic()
    assert provider.assembled("PROBE-T-delay").whole
    assert time.monotonic() - began >= 0.4


def test_a_slow_session_does_not_hold_up_another(provider: Running) -> None:
    done: list[float] = []

    def ask(probe: str) -> None:
        provider.ask(probe, session="slow")
        done.append(time.monotonic())

    slow = threading.Thread(target=ask, args=("PROBE-T-delay",))
    slow.start()
    ask("PROBE-T-plain")
    slow.join()
    assert len(done) == 2


def test_a_client_that_never_shakes_hands_does_not_hold_up_another(provider: Running) -> None:
    with closing(socket.create_connection(("127.0.0.1", provider.port))):
        assert provider.ask("PROBE-T-plain")[0] == 200


def test_a_body_in_chunks_is_read(provider: Running) -> None:
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"name": "B"}]}
    ).encode()
    with closing(provider.connection()) as connection:
        connection.request(
            "POST",
            "/v1/messages",
            iter([body[:10], body[10:]]),
            {"x-api-key": credential("PROBE-T-plain", "chunks")},
            encode_chunked=True,
        )
        with connection.getresponse() as response:
            assert response.status == 200
            assert json.loads(response.read())["role"] == "assistant"


def test_a_body_over_the_bound_is_refused_unread(provider: Running) -> None:
    with closing(provider.connection()) as connection:
        connection.putrequest("POST", "/v1/messages")
        connection.putheader("content-length", str(10**12))
        connection.endheaders()
        with connection.getresponse() as response:
            assert response.status == 413
            assert json.loads(response.read())["error"]["type"] == "request_too_large"


def test_the_certificate_stands_for_its_host_alone(authority: Authority) -> None:
    other = make_authority("api.example.test")
    process, ready = start(start_line(other), "--host", "127.0.0.1", "--port", "0")
    assert ready is not None
    try:
        running = Running(process, ready["port"], other)
        with pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
            running.ask("PROBE-T-plain")
        running.trust = ssl.create_default_context(cadata=authority.ca_pem)
        with pytest.raises(ssl.SSLCertVerificationError):
            running.ask("PROBE-T-plain")
        trust = ssl.create_default_context(cadata=other.ca_pem)
        # The strict profile is what newer Pythons and mitmproxy's OpenSSL ask for.
        trust.verify_flags |= ssl.VERIFY_X509_STRICT
        with (
            closing(socket.create_connection(("127.0.0.1", ready["port"]))) as plain,
            closing(trust.wrap_socket(plain, server_hostname="api.example.test")) as wrapped,
        ):
            assert wrapped.version() in ("TLSv1.2", "TLSv1.3")
    finally:
        end(process)


def close_input(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.close()


def terminate(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)


@pytest.mark.parametrize("ending", [close_input, terminate])
def test_it_ends_with_its_input_and_at_a_signal_even_while_it_answers(
    authority: Authority, ending: Callable[[subprocess.Popen[bytes]], None]
) -> None:
    script = "default: [{delay: 60, content: [{text: never}]}]"
    process, ready = start(
        start_line(authority, script=script), "--host", "127.0.0.1", "--port", "0"
    )
    assert ready is not None
    running = Running(process, ready["port"], authority)
    with closing(running.connection()) as connection:
        body = json.dumps(
            {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{}]}
        )
        connection.request("POST", "/v1/messages", body, {"x-api-key": credential("P", "s")})
        began = time.monotonic()
        ending(process)
        assert process.wait(10) == 0
        assert time.monotonic() - began < 1
    end(process)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"script": "P: [{content: [{txt: a}]}]"}, "script:1:17: a block has no key 'txt'"),
        ({"certificate": "nothing"}, "no certificate with its key"),
        ({"certificate": None}, "certificate and key are needed"),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_a_start_that_cannot_be_is_one_line_and_no_traceback(
    authority: Authority, change: dict[str, Any], says: str
) -> None:
    process, said = start(start_line(authority, **change), "--host", "127.0.0.1", "--port", "0")
    assert process.wait(10) == 2
    assert said is not None
    assert said["event"] == "failed"
    assert says in said["reasons"][0]
    assert process.stderr is not None
    assert process.stderr.read() == b""
    end(process)


def test_a_port_that_is_taken_is_named(authority: Authority) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = str(taken.getsockname()[1])
        process, said = start(start_line(authority), "--host", "127.0.0.1", "--port", port)
        assert process.wait(10) == 3
        assert said is not None
        assert f"127.0.0.1:{port}" in said["reasons"][0]
        end(process)


def test_the_report_names_each_request_and_only_when_asked(provider: Running) -> None:
    line = json.dumps({"script": SCRIPT, "workspace": "/elsewhere"}).encode()
    process, ready = start(line, "--plain", "--report", "--host", "127.0.0.1")
    assert ready is not None
    assert process.stdout is not None
    headers = {"x-api-key": credential("PROBE-T-plain", "s")}
    body = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": [{"name": "B"}]}
    )
    with closing(http.client.HTTPConnection("127.0.0.1", ready["port"], timeout=10)) as connection:
        connection.request("POST", "/v1/messages", body, headers)
        with connection.getresponse() as response:
            assert b"ls /elsewhere" in response.read()
    reported = json.loads(process.stdout.readline())
    assert (reported["probe"], reported["session"], reported["position"], reported["status"]) == (
        "PROBE-T-plain",
        "s",
        0,
        "200",
    )
    end(process)
    # The provider of the other tests was asked often by now, and said nothing after its first line.
    assert provider.process.stdout is not None
    assert not select.select([provider.process.stdout], [], [], 0)[0]


def test_serving_imports_nothing_heavy() -> None:
    heavy = ("cryptography", "docker", "rich", "typer", "asyncio", "requests", "hypothesis")
    code = (
        "import sys, recorder.rehearsal.__main__\n"
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
