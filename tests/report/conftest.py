"""One browser for the tests of the report, and a watch on what a page does in it."""

from __future__ import annotations

import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, Playwright, sync_playwright

from recorder.images.build import CACHE, FOLDER
from recorder.images.fetch import Fetcher, silent
from recorder.report.libraries import read_libraries
from recorder.report.page import fitted_page
from recorder.report.view import BatchView

# A browser that asks its maker for nothing. Root has no sandbox of its own to give it.
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)

Scheme = Literal["light", "dark"]
Open = Callable[..., Any]


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("chromium is missing: run make test, or tests/tools.sh")
    with sync_playwright() as playwright:
        chromium = started_browser(playwright, path)
        yield chromium
        chromium.close()


def started_browser(playwright: Playwright, path: str) -> Browser:
    flags = [*FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    return playwright.chromium.launch(executable_path=path, args=flags)


@contextmanager
def opened(
    browser: Browser,
    file: Path,
    address: str = "#/",
    *,
    width: int = 1200,
    scheme: Scheme = "light",
    script: bool = True,
) -> Iterator[Page]:
    """The file in a page. An error, a message on the console or a request fails the test."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, java_script_enabled=script
    )
    found: list[str] = []
    context.set_default_timeout(10_000)
    page = context.new_page()
    page.on("console", lambda message: found.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: found.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((file.as_uri(), "data:,"))
            else found.append(f"request: {request.url}")
        ),
    )
    page.goto(f"{file.as_uri()}{address}")
    if script:
        page.wait_for_selector("body[data-ready=yes]")
    try:
        yield page
        assert found == []
    finally:
        context.close()


@pytest.fixture(scope="session")
def report_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, BatchView], Path]:
    """Writes the report of a view, once for a name."""
    directory = tmp_path_factory.mktemp("reports")

    def written(name: str, view: BatchView) -> Path:
        path = directory / f"{name}.html"
        if not path.exists():
            path.write_text(fitted_page(view, read_libraries()))
        return path

    return written


@pytest.fixture(scope="session")
def axe() -> str:
    """The accessibility checker, fetched by its lock."""
    fetched = Fetcher(CACHE, silent).packages(Path(__file__).parent, FOLDER / "session")
    with tarfile.open(fetched.path) as packages:
        member = packages.extractfile("./axe-core/axe.min.js")
        assert member is not None
        return member.read().decode()


def violations(page: Page, axe: str) -> list[Any]:
    """What the checker finds, each with the elements it is about."""
    page.evaluate(f"() => {{ {axe}\n }}")
    found = page.evaluate("() => axe.run(document)")
    assert found["passes"]
    return [
        (each["id"], [node["html"] for node in each["nodes"]][:3]) for each in found["violations"]
    ]
