"""Disciplines in the report: their rates by arm, and the call that broke one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
import pytest
from playwright.sync_api import Browser, expect

from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.sessions import (
    LOG,
    RECORD,
    BatchVerdicts,
    SessionVerdicts,
    VerdictRecord,
    encode_verdicts,
    judge_batch,
    log_of,
)
from recorder.report.judged import breaks_of, discipline_rates, events_of, marked, strangers
from recorder.report.libraries import read_libraries
from recorder.report.page import PAGE_BYTES, fitted_page
from recorder.report.reading import read_batch, read_one
from recorder.report.terminal import batch_group, session_group
from recorder.report.view import BatchView, SessionView
from recorder.stream.observation import observe
from tests.disciplines.made import Call, Made, entry, rules
from tests.report import made
from tests.report.conftest import Scheme, opened, violations
from tests.report.test_report_verbs import shown

Report = Callable[[str, BatchView], Path]

RULES = rules(
    entry("no-bad", {"it": [{"op": "source", "of": "post"}, {"op": "matches", "re": "bad"}]}),
    entry("nothing-left", {"it": [{"op": "source", "of": "changes"}]}),
    entry("no-kill", {"it": [{"op": "source", "of": "command"}]}, scope="command"),
)


@pytest.fixture
def judged(tmp_path: Path) -> Path:
    """A batch of two sessions that ended, of which one breaks in its second call, and one that
    was refused."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "a").write_text("x")
    batch = Made(tmp_path / "out", tree)
    batch.begin()
    read = Call("Read", {"file_path": "/workspace/a"})
    write = Call("Write", {"file_path": "/workspace/b", "content": "bad"})
    batch.session([read, write], {"b": b"bad"})
    batch.session([read], {})
    batch.session([read], {}, refusal=10)
    verdicts = judge_batch(batch.out, load_disciplines(RULES, "rules.json"), [tree])
    (batch.out / RECORD).write_bytes(encode_verdicts(verdicts))
    (batch.out / LOG).write_text(log_of(verdicts))
    return batch.out


def test_the_call_that_broke_one_is_marked_and_the_session_as_a_whole(judged: Path) -> None:
    view = read_batch(judged)
    first, second, third = view.sessions
    assert [call.breaks for call in first.calls] == [(), ("no-bad",)]
    assert [(each.discipline, each.call, each.subject) for each in first.breaks] == [
        ("no-bad", 2, "b"),
        ("nothing-left", None, "b"),
    ]
    assert first.verdicts == {"advised": 2}
    assert (second.breaks, second.verdicts) == ((), {})
    assert (third.breaks, third.verdicts) == ((), None)
    assert third.not_judged == "it was refused with 10"
    rates = {rate.discipline: (rate.broken, rate.judged, rate.others) for rate in view.disciplines}
    assert rates == {"no-bad": (1, 1, 2), "nothing-left": (1, 1, 2), "no-kill": (0, 0, 3)}
    assert any(fact.name == "judged by disciplines" for fact in view.facts)
    assert read_one(judged / "sessions" / first.name).breaks == first.breaks


def test_a_terminal_shows_them_too(judged: Path) -> None:
    directory = judged / "sessions" / "L1-campaign-present-p1-r1"
    text = shown(session_group(read_one(directory)))
    assert "Write /workspace/b  breaks no-bad" in text
    assert "no-bad advised, call 2, b" in text
    assert "nothing-left advised, the whole session, b" in text
    assert "verdicts: 2 advised" in text
    refused = shown(session_group(read_one(judged / "sessions" / "L1-campaign-present-p1-r3")))
    assert "not judged: it was refused with 10" in refused
    text = shown(batch_group(read_batch(judged)))
    assert "Disciplines broken, by arm" in text
    (line,) = [line for line in text.splitlines() if line.startswith("no-bad")]
    assert line.split() == [
        "no-bad",
        "campaign",
        "present",
        "1",
        "of",
        "1",
        "21",
        "to",
        "100",
        "%",
        "2",
    ]


def test_a_batch_that_was_not_judged_says_nothing_of_it(judged: Path) -> None:
    (judged / RECORD).unlink()
    view = read_batch(judged)
    assert view.disciplines == ()
    assert all(session.verdicts is None and session.not_judged == "" for session in view.sessions)
    page = fitted_page(view, read_libraries())
    assert "data-disciplines>" not in page
    assert "Disciplines" not in shown(batch_group(view))
    assert "Disciplines" not in shown(session_group(view.sessions[0]))


@pytest.mark.parametrize("text", [b"{", b"{}", b'{"schema": 1}'])
def test_verdicts_that_cannot_be_read_are_a_note(judged: Path, text: bytes) -> None:
    (judged / RECORD).write_bytes(text)
    view = read_batch(judged)
    assert view.disciplines == ()
    assert any(note.startswith("disciplines.json: holds no verdicts") for note in view.notes)
    (judged / RECORD).unlink()
    (judged / RECORD).symlink_to(judged / LOG)
    assert len(read_batch(judged).notes) == len(view.notes)


def test_verdicts_of_another_stream_mark_no_call(judged: Path) -> None:
    read = msgspec.json.decode((judged / RECORD).read_bytes(), type=BatchVerdicts)
    (first, *_) = read.sessions
    raw = (judged / "sessions" / first.session / "raw.jsonl").read_bytes()
    assert strangers(first, observe([raw])) is None
    for bad in (
        msgspec.structs.replace(first.verdicts[0], line=1),
        msgspec.structs.replace(first.verdicts[0], call=9),
        msgspec.structs.replace(first.verdicts[0], call=0),
    ):
        moved = msgspec.structs.replace(first, verdicts=(bad,))
        assert "judge it again" in str(strangers(moved, observe([raw])))
    sessions = (msgspec.structs.replace(first, verdicts=(bad,)), *read.sessions[1:])
    (judged / RECORD).write_bytes(encode_verdicts(msgspec.structs.replace(read, sessions=sessions)))
    view = read_batch(judged).sessions[0]
    assert view.breaks == ()
    assert view.verdicts is None
    assert "judge it again" in view.not_judged


def verdict(discipline: str, call: int | None, event: str = "advised") -> VerdictRecord:
    record = json.loads(
        '{"discipline": "", "event": "", "subject": "f", "call": null, "line": null, "tool": null,'
        '"succeeded": null, "at_ms": 0, "skip": null, "unjudgeable": null, "broke": [],'
        '"message": null, "fifth": null}'
    )
    record |= {"discipline": discipline, "event": event, "call": call}
    if event in ("advised", "blocked"):
        record["broke"] = [{"id": "r", "total": 1, "message": "m"}]
    return msgspec.convert(record, VerdictRecord)


def judged_view(view: BatchView, names: tuple[str, ...] = ("no-bad", "read-first")) -> BatchView:
    """A view with verdicts: every third session breaks the first rule in its fifth call."""
    found: dict[str, SessionVerdicts] = {}
    for number, session in enumerate(view.sessions):
        verdicts = [verdict(names[1], call.number, "passed") for call in session.calls]
        if number % 3 == 0:
            verdicts += [verdict(names[0], 5), verdict(names[1], None, "blocked")]
        found[session.name] = SessionVerdicts(
            session=session.name,
            probe=session.probe,
            tier=session.tier,
            arm=session.arm,
            rehearsal=False,
            calls=len(session.calls),
            unproven=(),
            unattributed=(),
            not_judged=None,
            verdicts=tuple(verdicts),
        )
    batch = BatchVerdicts(
        schema="recorder.disciplines/1",
        file="f",
        digest=made.DIGEST,
        disciplines=names,
        drafts=(),
        sessions=tuple(found.values()),
    )
    return msgspec.structs.replace(
        view,
        sessions=tuple(_judged(session, found) for session in view.sessions),
        disciplines=discipline_rates(batch),
    )


def _judged(session: SessionView, found: Mapping[str, SessionVerdicts]) -> SessionView:
    breaks = breaks_of(found[session.name])
    return msgspec.structs.replace(
        session,
        calls=marked(session.calls, breaks),
        breaks=breaks,
        verdicts=events_of(found[session.name]),
    )


BROKE = "L1-campaign-present-p1-r1"
KEPT = "L2-campaign-absent-p1-r1"


@pytest.fixture
def report(report_of: Report) -> Path:
    return report_of("judged", judged_view(made.many(40)))


def test_rates_by_arm_are_on_the_page_with_their_intervals(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        chart = page.locator("[data-disciplines] svg[role=img]")
        expect(chart).to_be_visible()
        assert "by arm" in (chart.get_attribute("aria-label") or "")
        page.locator("details:has([aria-labelledby=disciplines]) summary").click()
        rows = page.get_by_role("region", name="Disciplines broken").locator("tbody tr")
        assert rows.count() == 2
        assert rows.first.locator("td").first.inner_text() == "7 of 7 65 % to 100 % + 13"
        assert rows.nth(1).locator("td").first.inner_text() == "7 of 20 18 % to 57 %"
        rows.nth(1).get_by_role("link", name="read-first").click()
        expect(page.get_by_role("status")).to_have_text("14 of 40 sessions")
    with opened(browser, report, script=False) as page:
        assert "18 % to 57 %" in (
            page.locator("[aria-labelledby=disciplines]").text_content() or ""
        )


def test_the_call_that_broke_one_is_on_the_timeline(browser: Browser, report: Path) -> None:
    with opened(browser, report, f"#/session/{BROKE}") as page:
        chart = page.locator("#session svg").first
        assert "call 5 breaks no-bad" in (chart.get_attribute("aria-label") or "")
        marked_rows = page.get_by_role("table", name="Calls").locator("tr:has(.badge.broken)")
        assert marked_rows.count() == 1
        expect(marked_rows).to_have_attribute("id", "call-5")
        expect(marked_rows.locator(".badge.broken")).to_have_text("breaks no-bad")
        broken = page.get_by_role("table", name="Disciplines").locator("tbody tr")
        assert broken.count() == 2
        assert "the whole session" in broken.nth(1).inner_text()
        broken.first.get_by_role("link", name="call 5").click()
        expect(page.locator("#call-5")).to_be_focused()
        assert page.url.endswith(f"#/session/{BROKE}")
        expect(page.locator("#session")).to_contain_text(
            "Verdicts: 1 advised, 1 blocked, 12 passed"
        )
    with opened(browser, report, f"#/session/{KEPT}") as page:
        expect(page.locator("#session")).to_contain_text("It broke none.")
        assert page.locator(".badge.broken").count() == 0


def test_sessions_that_broke_one_are_searched_and_filtered(browser: Browser, report: Path) -> None:
    with opened(browser, report, "#/sessions") as page:
        page.get_by_label("Search").fill("breaks no-bad")
        expect(page.get_by_role("status")).to_have_text("14 of 40 sessions")
        page.get_by_label("Search").fill("")
        page.get_by_label("Broke", exact=True).select_option("no-bad")
        expect(page.get_by_role("status")).to_have_text("14 of 40 sessions")


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
@pytest.mark.parametrize("place", ["#/", f"#/session/{BROKE}", "#/sessions?broke=no-bad"])
def test_it_fits_and_is_accessible(
    browser: Browser, report: Path, axe: str, place: str, width: int, scheme: Scheme
) -> None:
    with opened(browser, report, place, width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page, axe) == []


def test_hostile_names_of_disciplines_are_inert(browser: Browser, report_of: Report) -> None:
    view = judged_view(made.many(3), (made.HOSTILE[0], made.HOSTILE[1]))
    path = report_of("hostile-disciplines", view)
    for place in ("#/", "#/sessions", f"#/session/{BROKE}"):
        with opened(browser, path, place) as page:
            assert page.evaluate("document.body.dataset.hacked") is None
            assert page.locator("main img, main svg[onload]").count() == 0
    with opened(browser, path, f"#/session/{BROKE}") as page:
        expect(page.locator("#call-5 .badge.broken")).to_contain_text("onerror")


def test_six_hundred_judged_sessions_stay_small() -> None:
    view = judged_view(made.many(600))
    assert len(fitted_page(view, read_libraries()).encode()) < PAGE_BYTES
