"""The view as one HTML file that needs nothing else. Pure.

Text of a session reaches the page in two ways alone: through the template, which escapes it, and
as packed data that the page's script puts into text nodes. The page's own policy names each script
and style by digest, so nothing else on it can run, and lets it ask no host for anything.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources

import msgspec
from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from recorder import __version__
from recorder.disciplines.rates import Rate as DisciplineRate
from recorder.report.comparison_view import ComparisonView
from recorder.report.libraries import Libraries
from recorder.report.limits import SMALLER, trimmed
from recorder.report.view import BatchView, Rate

PAGE_BYTES = 3_000_000

# The charting library writes this much style into every chart, under the class name that is asked
# for: the policy has to name it.
CHART_CLASS = "chart"
_CHART_STYLE = re.compile(r"append\(\"style\"\)\.text\(`(?P<text>[^`]*)`\)")


def page(view: BatchView, libraries: Libraries) -> str:
    """The report. The same view gives the same bytes."""
    return rendered(
        "page", view, libraries, rates=_by_probe(view), disciplines=_by_discipline(view)
    )


def rendered(
    name: str, view: BatchView | ComparisonView, libraries: Libraries, **more: object
) -> str:
    """A view in the template ``<name>.html`` with the script ``<name>.js``."""
    style = _part("page.css")
    scripts = (*libraries.scripts, _part("drawing.js"), _part(f"{name}.js"))
    environment = Environment(
        loader=FunctionLoader(_part),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(f"{name}.html").render(
        view=view,
        version=__version__,
        policy=content_policy(scripts, (style, *chart_styles(libraries))),
        scripts=[Markup(_element(text)) for text in scripts],
        style=Markup(_element(style)),
        licences=libraries.licences,
        data=packed(view),
        percent=lambda value: f"{value * 100:.0f} %",
        **more,
    )


def comparison_page(view: ComparisonView, libraries: Libraries) -> str:
    """Two sides held against each other. The same view gives the same bytes."""
    groups = [
        (
            group.name,
            [rate for rate in view.rates if rate.group == number],
            [measure for measure in view.measures if measure.group == number],
        )
        for number, group in enumerate(view.groups)
    ]
    return rendered("comparison", view, libraries, groups=groups, number=_figure, points=_points)


def fitted_page(view: BatchView, libraries: Libraries, limit: int = PAGE_BYTES) -> str:
    """The report, with less of long arguments and files where it would be larger than ``limit``.

    Where even the least is larger, it is what it is.
    """
    made = page(view, libraries)
    for limits in SMALLER:
        if len(made.encode()) <= limit:
            break
        made = page(trimmed(view, limits), libraries)
    return made


def packed(view: BatchView | ComparisonView) -> str:
    """The view as base64 of gzip of JSON: ASCII without a character that markup knows."""
    return base64.b64encode(
        gzip.compress(msgspec.json.encode(view), compresslevel=9, mtime=0)
    ).decode("ascii")


def content_policy(scripts: Sequence[str], styles: Sequence[str]) -> str:
    """What the page may do: run these scripts, use these styles, show its own empty icon."""
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {' '.join(map(_source, scripts))}",
            f"style-src {' '.join(map(_source, styles))}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )


def chart_styles(libraries: Libraries) -> tuple[str, ...]:
    """The styles that the charting library writes into a chart of the class ``CHART_CLASS``."""
    return tuple(
        re.sub(r"\$\{\w+\}", CHART_CLASS, found["text"]).replace("\\n", "\n")
        for script in libraries.scripts
        for found in _CHART_STYLE.finditer(script)
    )


def _source(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode('ascii')}'"


def _element(text: str) -> str:
    """A script's or a style's text, refused where it would end its own element."""
    if re.search(r"</(script|style)", text, re.IGNORECASE) or "<!--" in text:
        raise ValueError("the text would end its element")
    return text


def _part(name: str) -> str:
    return resources.files("recorder.report").joinpath(name).read_text("utf-8")


def _figure(value: float, sign: bool = False) -> str:
    """A number to three significant places, whole where it is."""
    text = (
        f"{value:,.0f}"
        if value == int(value)
        else f"{value:.3g}"
        if abs(value) < 1000
        else f"{value:,.0f}"
    )
    return f"+{text}" if sign and value > 0 else text


def _points(value: float) -> str:
    """A difference of two rates, in points of a hundred."""
    points = round(value * 100)
    return f"{'+' if points > 0 else ''}{points}"


@dataclass(frozen=True)
class _Disciplines:
    """The rates of disciplines as a table: a column an arm, a row a discipline."""

    arms: tuple[str, ...]
    rows: tuple[tuple[str, tuple[DisciplineRate, ...]], ...]


def _by_discipline(view: BatchView) -> _Disciplines | None:
    if not view.disciplines:
        return None
    arms = tuple(dict.fromkeys(f"{rate.tier} {rate.arm}" for rate in view.disciplines))
    rows: dict[str, list[DisciplineRate]] = {}
    for rate in view.disciplines:
        rows.setdefault(rate.discipline, []).append(rate)
    return _Disciplines(arms, tuple((name, tuple(cells)) for name, cells in rows.items()))


def _by_probe(view: BatchView) -> list[tuple[str, list[str], list[tuple[str, list[Rate | None]]]]]:
    """Rates as a table a probe: its name, the lines, and a row for each thing that is counted."""
    names = {line.number: line.name for line in view.lines}
    tables = []
    for probe in view.probes:
        own = [rate for rate in view.rates if rate.probe == probe.id]
        if not own:
            continue
        lines = sorted({rate.line for rate in own})
        what = list(dict.fromkeys(rate.what for rate in own))
        cells = {(rate.what, rate.line): rate for rate in own}
        rows = [(name, [cells.get((name, line)) for line in lines]) for name in what]
        tables.append((probe.id, [names[line] for line in lines], rows))
    return tables
