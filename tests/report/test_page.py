"""The report as a file: small, the same for the same batch, and inert."""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import time

import pytest

from recorder.report.libraries import read_libraries
from recorder.report.limits import Limits, trimmed
from recorder.report.page import PAGE_BYTES, content_policy, fitted_page, page
from tests.report import made

SESSIONS = 600


def data_of(text: str) -> dict[str, object]:
    found = re.search(r'id="data">([A-Za-z0-9+/=]*)<', text)
    assert found is not None
    value = json.loads(gzip.decompress(base64.b64decode(found[1])))
    assert isinstance(value, dict)
    return value


def test_six_hundred_sessions_are_under_three_megabytes() -> None:
    started = time.monotonic()
    text = fitted_page(made.many(SESSIONS), read_libraries())
    assert len(text.encode()) < PAGE_BYTES
    assert time.monotonic() - started < 30
    sessions = data_of(text)["sessions"]
    assert isinstance(sessions, list)
    assert len(sessions) == SESSIONS


def test_a_page_that_would_be_too_large_shows_less_and_says_so() -> None:
    view, libraries = made.many(20), read_libraries()
    whole = len(page(view, libraries))
    text = fitted_page(view, libraries, whole - 1000)
    assert len(text) < whole - 1000
    assert "what is longer says so" in text
    cut = trimmed(view, Limits(argument=10, difference=2, rows=3)).sessions[0]
    assert (len(cut.calls), cut.more_calls, cut.more_requests) == (3, 9, 10)
    assert cut.files is not None
    assert [(len(file.diff or ()), file.cut) for file in cut.files] == [(2, 6)]
    assert all(call.cut == len(view.sessions[0].calls[0].argument) - 10 for call in cut.calls)


def test_the_same_batch_gives_the_same_bytes() -> None:
    libraries = read_libraries()
    assert page(made.many(3), libraries) == page(made.many(3), libraries)


@pytest.mark.parametrize("text", made.HOSTILE[:3])
def test_no_text_of_a_session_is_markup(text: str) -> None:
    assert text not in page(made.hostile(), read_libraries())


def test_the_page_names_no_place_to_fetch_from() -> None:
    text = page(made.many(2), read_libraries())
    own = text[: text.index('<script type="application/octet-stream"')]
    assert re.findall(r'(?:src|href)="(?!#|data:,")[^"]*"', own) == []
    assert "url(" not in own
    assert "default-src &#39;none&#39;" in own


def test_the_policy_names_every_script_and_style_by_digest() -> None:
    policy = content_policy(["a"], ["b"])
    assert "'sha256-ypeBEsobvcr6wjGzmiPcTaeG7/gUfE5yuYB3ha/uSLs='" in policy
    assert "unsafe" not in policy


def test_the_licences_travel_with_the_page() -> None:
    text = page(made.many(1), read_libraries())
    assert text.count("Permission to use, copy, modify, and/or distribute") == 2


def test_a_rehearsal_says_so_before_anything_else() -> None:
    view = made.batch([made.session(0, random.Random(1), rehearsal=True)])
    text = page(view, read_libraries())
    assert "<title>Rehearsal: " in text
    assert text.index("Rehearsal, not a measurement") < text.index("<header>")
    assert "Rehearsal, not" not in page(made.many(1), read_libraries()).split("<script", 1)[0]


def test_a_batch_without_a_recorded_session_has_no_rate() -> None:
    refused = made.session(0, random.Random(1), outcome="refused", code=16)
    view = made.batch([refused])
    assert view.rates == ()
    assert "No probe of this batch" in page(view, read_libraries())
