"""What a stream says of the request that ended its session, on the harness's own captures."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.stream.failures import Failure, failure_of
from tests.stream.streams import init, line, result

# As 2.1.332 printed them for a 429 with the headers of a subscription's limit.
LIMIT = (
    b'{"type":"assistant","message":{"id":"x","model":"<synthetic>","role":"assistant","content":'
    b'[{"type":"text","text":"You\'ve hit your 5-hour limit \xc2\xb7 resets 12am (UTC)"}]},'
    b'"parent_tool_use_id":null,"error":"rate_limit","is_api_error_message":true,'
    b'"api_error_status":429,"api_error":"usage_limit_reached","api_error_params":'
    b'{"rate_limit_info":{"status":"rejected","resetsAt":1796083200,"rateLimitType":"five_hour",'
    b'"overageStatus":"rejected","isUsingOverage":false}},"api_error_type":"rate_limit_error"}\n'
    b'{"type":"result","subtype":"success","is_error":true,"terminal_reason":"api_error",'
    b'"api_error_status":429,"api_error":"usage_limit_reached","total_cost_usd":0,'
    b'"result":"You\'ve hit your 5-hour limit \xc2\xb7 resets 12am (UTC)"}\n'
)


def test_a_usage_limit_tells_when_it_resets_and_no_prose_is_read() -> None:
    wanted = Failure(429, "rate_limit", "usage_limit_reached", 1796083200.0, 0)
    assert failure_of([init(), LIMIT]) == wanted
    assert failure_of([init(), LIMIT.replace(b"12am", b"3pm")]) == wanted


@pytest.mark.parametrize(
    ("capture", "failure"),
    [
        ("30-err400", Failure(400, "unknown", None, None, 0)),
        ("31-err401", Failure(401, "authentication_failed", None, None, 0)),
        ("33-err403", Failure(403, "authentication_failed", None, None, 0)),
        ("34-err404-model", Failure(404, "model_not_found", None, None, 0)),
        ("36-err429-gives-up", Failure(429, "rate_limit", None, None, 10)),
        ("38-err529-gives-up", Failure(529, "server_error", None, None, 10)),
        ("39-err500-gives-up", Failure(500, "server_error", None, None, 2)),
        ("41-drop-before-answer", Failure(None, "server_error", "connection_failed", None, 2)),
        ("49-credit", Failure(400, "billing_error", None, None, 0)),
        ("64-no-auth", Failure(None, "authentication_failed", None, None, 0)),
        ("89-tls-untrusted", Failure(None, "server_error", "tls_untrusted_ca", None, 0)),
        ("35-err429-recovers", None),
        ("43-drop-mid-text", None),
        ("55-max-turns", None),
        ("57-prompt-too-long", None),
        ("70-sigint", None),
        ("71-sigterm", None),
    ],
)
def test_a_capture_s_failure(shared: Path, capture: str, failure: Failure | None) -> None:
    path = shared / "captures" / "claude-code" / f"{capture}.jsonl"
    assert failure_of([path.read_bytes()]) == failure


def test_a_line_that_cannot_be_read_says_nothing() -> None:
    assert failure_of([b"x\n", b'{"type": "resu']) is None
    odd = line(type="assistant", is_api_error_message=True, api_error_params=[1], error={})
    ended = result(is_error=True, terminal_reason="api_error", api_error_status=True)
    assert failure_of([odd, ended]) == Failure(None, None, None, None, 0)
    for told in (True, "soon", -1, None, float("inf"), 1_796_083_200_000, 10**30):
        limit = {"rate_limit_info": {"resetsAt": told}}
        odd = line(type="assistant", is_api_error_message=True, api_error_params=limit)
        found = failure_of([odd.replace(b"Infinity", b"1e400"), ended])
        assert found is not None
        assert found.resets_at is None
