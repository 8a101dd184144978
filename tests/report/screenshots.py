"""Pictures of the report for the README: ``python -m tests.report.screenshots DIR OUT``.

DIR is a recorded batch, OUT a directory. Desktop, phone and dark, as a person first sees them.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import sync_playwright

from recorder.report.comparison import comparison_view
from recorder.report.libraries import read_libraries
from recorder.report.page import comparison_page, fitted_page
from recorder.report.reading import read_batch
from recorder.report.sides import read_side
from tests.report.conftest import Scheme, opened, started_browser

ARMS = {"A": "present", "B": "absent"}
SESSION = "L1-campaign-present-p1-r1"


@dataclass(frozen=True)
class Picture:
    name: str
    address: str
    width: int
    height: int
    scheme: Scheme


COMPARED = Picture("report-compared", "", 1200, 900, "light")
PICTURES = (
    Picture("report-desktop", "#/", 1200, 900, "light"),
    Picture("report-dark", f"#/session/{SESSION}", 1200, 900, "dark"),
    Picture("report-phone", f"#/session/{SESSION}", 400, 900, "light"),
)


def main(batch: Path, out: Path) -> int:
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, sync_playwright() as playwright:
        report = Path(work, "report.html")
        report.write_text(fitted_page(read_batch(batch), read_libraries()))
        browser = started_browser(playwright, shutil.which("chromium") or "chromium")
        compared = Path(work, "comparison.html")
        sides = [read_side(f"{batch}:{arm}", label) for label, arm in ARMS.items()]
        compared.write_text(comparison_page(comparison_view(*sides), read_libraries()))
        for picture, file in [*((each, report) for each in PICTURES), (COMPARED, compared)]:
            with opened(
                browser, file, picture.address, width=picture.width, scheme=picture.scheme
            ) as page:
                page.set_viewport_size({"width": picture.width, "height": picture.height})
                page.wait_for_timeout(300)
                page.screenshot(path=out / f"{picture.name}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
