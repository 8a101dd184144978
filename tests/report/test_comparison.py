"""Two sides held against each other: what is compared, what is not, and the intervals."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from playwright.sync_api import Browser, expect

from recorder.report.comparison import Side, comparison_view
from recorder.report.comparison_view import ComparisonView, RateDifference
from recorder.report.interval import newcombe, wilson
from recorder.report.libraries import read_libraries
from recorder.report.page import PAGE_BYTES, comparison_page
from recorder.report.view import FileView, ProbeView, SessionView
from tests.recording.rig import recorder
from tests.report import made
from tests.report.conftest import Scheme, opened, violations
from tests.report.recorded import recorded_batch

# Of Newcombe 1998, table II, method 10: a count of a total less another, and the limits.
PUBLISHED = [
    ((56, 70), (48, 80), 0.0524, 0.3339),
    ((9, 10), (3, 10), 0.1705, 0.8090),
    ((6, 7), (2, 7), 0.0582, 0.8062),
    ((5, 56), (0, 29), -0.0381, 0.1926),
    ((0, 10), (0, 20), -0.1611, 0.2775),
    ((0, 10), (0, 10), -0.2775, 0.2775),
    ((10, 10), (0, 20), 0.6791, 1.0),
    ((10, 10), (0, 10), 0.6075, 1.0),
]

COUNTED = st.integers(1, 400).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(("second", "first", "low", "high"), PUBLISHED)
def test_the_interval_of_a_difference_is_the_published_one(
    second: tuple[int, int], first: tuple[int, int], low: float, high: float
) -> None:
    assert newcombe(first, second) == pytest.approx((low, high), abs=6e-5)


@given(COUNTED, COUNTED)
def test_the_interval_holds_the_difference_mirrors_and_stays_a_difference(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    low, high = newcombe(first, second) or (2, 2)
    difference = second[0] / second[1] - first[0] / first[1]
    assert -1 <= low <= difference + 1e-12
    assert difference - 1e-12 <= high <= 1
    assert newcombe(second, first) == pytest.approx((-high, -low))


def test_a_side_without_a_session_has_no_interval() -> None:
    assert newcombe((0, 0), (1, 2)) is None
    assert newcombe((1, 2), (0, 0)) is None


# What is compared.


def probe(identifier: str, *answers: str) -> ProbeView:
    return ProbeView(id=identifier, path="", category="", expects="", answers=answers, examines="")


def side(
    sessions: Sequence[SessionView],
    *probes: ProbeView,
    label: str = "A: one",
    pins: Mapping[str, str] | None = None,
) -> Side:
    return Side(
        label, probes or (probe("PROBE-A", "yes", "no"),), tuple(sessions), lambda _: pins or {}
    )


def sessions(count: int, answer: str | None, **changes: object) -> list[SessionView]:
    chance = random.Random(5)
    members = {"arm": "present", "answer": answer, "opened": None, **changes}
    return [made.session(number, chance, **members) for number in range(count)]


def rates(view: ComparisonView) -> dict[tuple[str, str], RateDifference]:
    return {(view.groups[rate.group].name, rate.what): rate for rate in view.rates}


def test_rates_have_both_intervals_and_their_difference() -> None:
    a = side([*sessions(6, "yes"), *sessions(4, "no")])
    b = side([*sessions(2, "yes"), *sessions(8, "no")])
    found = rates(comparison_view(a, b))["PROBE-A, campaign", "yes"]
    assert (found.a.count, found.a.total, found.b.count, found.b.total) == (6, 10, 2, 10)
    assert (found.a.low, found.a.high) == wilson(6, 10)
    assert found.difference == pytest.approx(-0.4)
    assert (found.low, found.high) == newcombe((6, 10), (2, 10))


def test_what_one_side_alone_has_is_named_and_not_counted() -> None:
    probes = probe("PROBE-A", "yes"), probe("PROBE-B", "yes")
    common = sessions(3, "yes", dollars=1.0)
    b = [*common, *sessions(5, "yes", probe="PROBE-B", dollars=9.0)]
    view = comparison_view(side(common, *probes), side(b, *probes))
    assert [group.probe for group in view.groups] == ["PROBE-A"]
    (alone,) = view.alone
    assert (alone.side, alone.group, alone.sessions) == ("B", "PROBE-B, campaign", 5)
    assert view.b.sessions == 3
    assert {point.dollars for point in view.points} == {1.0}
    assert {rate.b.total for rate in view.rates} == {3}


def test_arms_are_compared_where_each_side_has_one_and_kept_apart_otherwise() -> None:
    present, absent = sessions(2, "yes"), sessions(2, "no", arm="absent")
    assert [g.arm for g in comparison_view(side(present), side(absent)).groups] == [""]
    view = comparison_view(side([*present, *absent]), side([*present, *absent]))
    assert [group.arm for group in view.groups] == ["absent", "present"]
    view = comparison_view(side([*present, *absent]), side(present))
    assert [alone.group for alone in view.alone] == ["PROBE-A, campaign, absent"]


def test_a_session_that_did_not_record_counts_in_no_rate_and_one_not_run_in_nothing() -> None:
    a = side([*sessions(2, "yes"), *sessions(3, "no", outcome="refused", code=14)])
    b = side([*sessions(2, "yes"), *sessions(3, None, outcome="not run", dollars=None)])
    view = comparison_view(a, b)
    assert rates(view)["PROBE-A, campaign", "yes"].a.total == 2
    cost = next(measure for measure in view.measures if measure.name == "cost, dollars")
    assert (cost.a.known, cost.b.known, cost.b.unknown) == (5, 2, 0)


def file(path: str, added: int | None, removed: int | None, kind: str = "changed") -> FileView:
    return FileView(
        path=path,
        kind=kind,
        digest=made.DIGEST,
        cites=(),
        findings=None,
        diff=None,
        cut=0,
        why="",
        added=added,
        removed=removed,
    )


def test_files_and_lines_are_counted_and_what_cannot_be_told_is_said() -> None:
    a = side(sessions(2, "yes", files=(file("x", 3, 1), file("y", None, None))))
    b = side(sessions(1, "yes", files=(file("x", 10, 0),)))
    view = comparison_view(a, b)
    by_path = {found.path: found for found in view.files}
    assert (by_path["x"].a.sessions, by_path["x"].a.added, by_path["x"].a.removed) == (2, 6, 2)
    assert (by_path["y"].a.untold, by_path["y"].b.sessions) == (2, 0)
    measures = {measure.name: measure for measure in view.measures}
    assert measures["files made or changed"].difference == -1
    assert measures["lines added or removed"].a.unknown == 2
    assert measures["lines added or removed"].difference is None


def test_only_pins_that_differ_are_shown_and_a_missing_one_is_told() -> None:
    a = side([], pins={"seed": "1", "model": "m", "old": "x"})
    b = side([], pins={"seed": "2", "model": "m"})
    found = [(pin.member, pin.a, pin.b) for pin in comparison_view(a, b).pins]
    assert found == [("seed", "1", "2"), ("old", "x", None)]


def test_what_makes_a_comparison_worthless_is_said() -> None:
    plain, rehearsed = sessions(1, "yes"), sessions(1, "yes", rehearsal=True)
    assert "no difference means anything" in comparison_view(side(plain), side(rehearsed)).notes[0]
    nothing = comparison_view(side(plain), side(sessions(1, "yes", probe="PROBE-B")))
    assert "no probe in common" in nothing.notes[0]
    other = comparison_view(side(plain), side(plain, probe("PROBE-A", "yes", "perhaps")))
    assert "planned in another way" in other.notes[0]


# Its page.


def compared() -> ComparisonView:
    chance = random.Random(8)
    arms = [
        [made.session(number, chance, arm=arm, probe=f"PROBE-{number % 3}") for number in range(24)]
        for arm in ("present", "absent")
    ]
    probes = [probe(f"PROBE-{number}", "yes", "no") for number in range(3)]
    a = side(arms[0], *probes, pins={"manifest of campaign": made.DIGEST})
    return comparison_view(a, side(arms[1], *probes, label="B: two"))


def hostile() -> ComparisonView:
    text = made.HOSTILE[1]
    own = sessions(2, made.one_line(text), files=(file(made.one_line(text), 1, 1),))
    return comparison_view(
        side(own, label=made.HOSTILE[0], pins={made.HOSTILE[0]: text}),
        side(own, label=made.HOSTILE[4], pins={made.HOSTILE[0]: made.HOSTILE[5]}),
    )


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[ComparisonView], Path]:
    directory = tmp_path_factory.mktemp("comparisons")

    def written(view: ComparisonView) -> Path:
        path = directory / f"{len(list(directory.iterdir()))}.html"
        path.write_text(comparison_page(view, read_libraries()))
        return path

    return written


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_a_comparison_loads_alone_fits_and_is_accessible(
    browser: Browser,
    page_of: Callable[[ComparisonView], Path],
    axe: str,
    width: int,
    scheme: Scheme,
) -> None:
    with opened(browser, page_of(compared()), "", width=width, scheme=scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        charts = page.locator(".plot svg[role=img][aria-label]")
        assert charts.count() == 3 + 2
        for chart in charts.all():
            assert chart.locator("path, line, circle").count() > 3
        assert violations(page, axe) == []


def test_a_comparison_is_used_by_keyboard_and_drawn_again_at_another_width(
    browser: Browser, page_of: Callable[[ComparisonView], Path]
) -> None:
    with opened(browser, page_of(compared()), "") as page:
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        for name in ("Rates", "Cost, time and calls", "Files", "Pins"):
            page.keyboard.press("Tab")
            expect(page.locator(":focus")).to_have_text(name)
        page.keyboard.press("Enter")
        expect(page.locator("#pins")).to_be_in_viewport()
        page.set_viewport_size({"width": 400, "height": 900})
        expect(page.locator(".plot").first).to_have_attribute("data-width", re.compile(r"^3\d\d$"))


def test_without_scripts_the_tables_of_a_comparison_are_there(
    browser: Browser, page_of: Callable[[ComparisonView], Path]
) -> None:
    with opened(browser, page_of(compared()), "", script=False) as page:
        assert page.locator("tbody tr:visible").count() > 20
        expect(page.get_by_text("PROBE-0, campaign").first).to_be_visible()


def test_hostile_text_in_a_comparison_is_inert(
    browser: Browser, page_of: Callable[[ComparisonView], Path]
) -> None:
    with opened(browser, page_of(hostile()), "") as page:
        assert page.evaluate("document.body.dataset.hacked ?? 'no'") == "no"
        assert page.locator("img, iframe, main script").count() == 0
        assert "onerror" in page.locator("main").inner_text()


def test_six_hundred_sessions_a_side_make_a_small_page() -> None:
    own = side(made.many(600).sessions)
    assert len(comparison_page(comparison_view(own, own), read_libraries()).encode()) < PAGE_BYTES


# The verb.


@pytest.mark.engine
def test_two_arms_of_a_recorded_batch_are_compared(browser: Browser, tmp_path: Path) -> None:
    batch, out = recorded_batch(), tmp_path / "comparison.html"
    named = "--compare", f"{batch}:present", f"{batch}:absent"
    ran = recorder("report", *named, "--out", out)
    assert (ran.code, ran.err, ran.out) == (0, "", f"{out}\n")
    with opened(browser, out, "") as page:
        expect(page.locator(".rehearsal")).to_be_visible()
        expect(page.locator("#pins ~ div")).to_contain_text("manifest of campaign")
    found = json.loads(recorder("report", *named, "--json").out)
    assert found["schema"] == "recorder.comparison/1"
    assert found["alone"] == []
    assert len(found["groups"]) == 3
    assert {point["side"] for point in found["points"]} == {"A", "B"}
    assert str(batch) not in json.dumps(found)


@pytest.mark.engine
def test_a_batch_is_the_same_as_its_copy_and_shows_a_pin_that_moved(tmp_path: Path) -> None:
    batch, copy = recorded_batch(), tmp_path / "copy"
    shutil.copytree(batch, copy)
    found = json.loads(recorder("report", "--compare", batch, copy, "--json").out)
    assert found["pins"] == []
    assert {rate["difference"] for rate in found["rates"]} == {0.0}
    # What an earlier attempt left is no session of either side.
    first = next(each.name for each in (copy / "sessions").iterdir())
    shutil.copytree(batch / "sessions" / first, copy / "sessions" / f"{first}.attempt-1")
    again = json.loads(recorder("report", "--compare", batch, copy, "--json").out)
    assert (again["b"]["arms"], again["alone"]) == (found["b"]["arms"], [])
    pinned = json.loads((copy / "batch.json").read_text())
    (copy / "batch.json").write_text(json.dumps({**pinned, "model": "another"}))
    found = json.loads(recorder("report", "--compare", batch, copy, "--json").out)
    assert [pin["member"] for pin in found["pins"]] == ["model"]


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    (batch / "sessions").mkdir(parents=True)
    for arguments, said in (
        (("report",), "name one batch's directory"),
        (("report", batch, "--compare", batch, batch), "name one batch's directory"),
        (("report", batch, "--json"), "name two with --compare"),
        (("report", "--compare", batch, tmp_path / "no"), "is no batch's directory"),
        (("report", "--compare", batch, f"{batch}:absent"), "is of `absent`"),
    ):
        ran = recorder(*arguments)
        assert ran.code == 2
        assert said in ran.err
    (batch / "batch.json").write_text("[]")
    assert recorder("report", "--compare", batch, batch).code == 19
