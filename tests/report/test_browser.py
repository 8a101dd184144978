"""The report in Debian's Chromium: it loads alone, works by mouse and by keyboard, and is inert."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from recorder.report.view import BatchView
from tests.report import made
from tests.report.conftest import Scheme, opened, violations

Report = Callable[[str, BatchView], Path]

FIRST = "L1-campaign-present-p1-r1"
PLACES = ("#/", "#/sessions", f"#/session/{FIRST}", "#/session/nobody")


@pytest.fixture
def report(report_of: Report) -> Path:
    return report_of("forty", made.many(40))


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
@pytest.mark.parametrize("place", PLACES)
def test_every_page_loads_alone_fits_and_is_accessible(
    browser: Browser, report: Path, axe: str, place: str, width: int, scheme: Scheme
) -> None:
    with opened(browser, report, place, width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert violations(page, axe) == []


def test_the_glance_has_a_chart_in_every_place(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        places = page.locator(".plot")
        assert places.count() == 5
        for number in range(places.count()):
            chart = places.nth(number).locator("svg[role=img][aria-label]")
            expect(chart).to_be_visible()
            assert chart.locator("path, line, rect, circle").count() > 3
        page.set_viewport_size({"width": 400, "height": 900})
        expect(places.first).to_have_attribute("data-width", re.compile(r"^3\d\d$"))


def test_sessions_are_searched_filtered_and_sorted_and_the_address_keeps_it(
    browser: Browser, report: Path
) -> None:
    with opened(browser, report, "#/sessions") as page:
        rows = page.locator("#list tbody tr")
        assert rows.count() == 40
        page.get_by_label("Line", exact=True).select_option("L2-campaign-absent")
        assert rows.count() == 20
        page.get_by_label("Search").fill("absent-p1-r1")
        expect(page.get_by_role("status")).to_have_text("11 of 40 sessions")
        page.get_by_role("button", name="Cost").click()
        page.get_by_role("button", name="Cost").click()
        costs = [float(text[1:]) for text in page.locator("#list td:last-child").all_inner_texts()]
        assert costs == sorted(costs, reverse=True)
        expect(page.locator("th[aria-sort=descending]")).to_have_text(re.compile("Cost"))
        address = page.url
        names = page.locator("#list tbody th a").all_inner_texts()
    with opened(browser, report, f"#{address.partition('#')[2]}") as page:
        assert page.locator("#list tbody th a").all_inner_texts() == names
        expect(page.get_by_label("Search")).to_have_value("absent-p1-r1")


def test_a_session_has_an_address_of_its_own(browser: Browser, report: Path) -> None:
    with opened(browser, report, f"#/session/{FIRST}") as page:
        expect(page.locator("#session h1")).to_contain_text(FIRST)
        assert page.title() == f"{FIRST} \N{EN DASH} made"
        page.get_by_role("link", name="Next →").click()
        expect(page.locator("#session h1")).to_contain_text("L2-campaign-absent-p1-r1")
        page.go_back()
        expect(page.locator("#session h1")).to_contain_text(FIRST)
        assert page.get_by_role("table", name="Calls").locator("tbody tr").count() == 12
        assert page.get_by_role("table", name="Egress").locator("tbody tr").count() == 13
        assert page.locator(".diff span.add").count() == 8
        lanes = page.locator("#session svg").first.text_content() or ""
        for lane in ("Bash", "→ api.anthropic.com:443", "→ mirror.test:443"):
            assert lane in lanes


def test_it_is_used_by_keyboard_alone(browser: Browser, report: Path) -> None:
    with opened(browser, report) as page:
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.keyboard.press("/")
        expect(page.get_by_label("Search")).to_be_focused()
        page.keyboard.type("r20")
        expect(page.get_by_role("status")).to_have_text("2 of 40 sessions")
        for _ in range(30):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('#list tbody th a')"):
                break
        page.keyboard.press("Enter")
        expect(page.locator("#session h1")).to_be_focused()
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


@pytest.mark.parametrize("place", ["#/", "#/sessions", *range(len(made.HOSTILE))])
def test_hostile_names_and_paths_are_inert(
    browser: Browser, report_of: Report, place: str | int
) -> None:
    view = made.hostile()
    report = report_of("hostile", view)
    with opened(browser, report, "#/sessions") as page:
        if isinstance(place, int):
            page.locator("#list tbody th a").nth(place).click()
            expect(page.locator("#session h1")).to_be_visible()
        else:
            page.goto(f"{report.as_uri()}{place}")
        shown = page.locator("main").inner_text()
        assert page.evaluate("document.body.dataset.hacked ?? 'no'") == "no"
        assert page.locator("img, iframe, object, embed, main script, form[action]").count() == 0
        assert page.locator("a[href]").evaluate_all(
            "links => links.every(link => link.getAttribute('href').startsWith('#'))"
        )
        assert not {"\u202e", "\u200b", "\x1b"} & set(shown)
        assert "onerror" in shown


def test_the_page_itself_refuses_markup_and_scripts_of_another(
    browser: Browser, report: Path
) -> None:
    refused = (
        "text => { try { document.body.innerHTML = text; return 'done' } catch { return 'no' } }"
    )
    with pytest.raises(AssertionError, match="TrustedHTML"), opened(browser, report) as page:
        assert page.evaluate(refused, "<b>x</b>") == "no"


def test_a_rehearsal_says_so_on_every_page_and_in_every_chart(
    browser: Browser, report_of: Report
) -> None:
    chance = random.Random(3)
    sessions = [made.session(number, chance, rehearsal=True) for number in range(8)]
    report = report_of("rehearsal", made.batch(sessions))
    for place in PLACES[:3]:
        with opened(browser, report, place) as page:
            expect(page.locator(".rehearsal")).to_be_in_viewport()
            page.mouse.wheel(0, 4000)
            expect(page.locator(".rehearsal")).to_be_in_viewport()
            assert page.title().startswith("Rehearsal: ")
            for chart in page.locator("svg:visible").all():
                assert (chart.get_attribute("aria-label") or "").startswith("Rehearsal")
            if place != "#/":
                assert page.locator(".badge.script:visible").count() >= 1


def test_without_scripts_the_tables_are_there(browser: Browser, report: Path) -> None:
    with opened(browser, report, script=False) as page:
        expect(page.get_by_role("heading", name="By line and arm")).to_be_visible()
        assert page.locator("tbody tr:visible").count() >= 4
        expect(page.locator("noscript p")).to_be_visible()


def test_six_hundred_sessions_are_usable(browser: Browser, report_of: Report) -> None:
    with opened(browser, report_of("many", made.many(600)), "#/sessions") as page:
        assert page.locator("#list tbody tr").count() == 600
        page.get_by_label("Search").fill("absent-p1-r300")
        expect(page.get_by_role("status")).to_have_text("1 of 600 sessions")
        page.locator("#list tbody th a").click()
        expect(page.locator("#session h1")).to_contain_text("r300")
