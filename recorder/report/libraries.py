"""The report's charting library: fetched by its lock at set-up, inlined into every page.

``python -m recorder.report.libraries`` puts the files beside this one, from where a wheel and the
recorder's image take them along.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from recorder.refusal import ExitCode, Refusal

FOLDER = Path(__file__).parent
VENDOR = FOLDER / "vendor"

# Name here, and path inside node_modules. The charting library calls d3, so d3 comes first.
FILES: Mapping[str, str] = {
    "d3.js": "./d3/dist/d3.min.js",
    "d3-licence.txt": "./d3/LICENSE",
    "plot.js": "./@observablehq/plot/dist/plot.umd.min.js",
    "plot-licence.txt": "./@observablehq/plot/LICENSE",
}


@dataclass(frozen=True)
class Libraries:
    """Scripts in the order they run, and the licences that travel with them."""

    scripts: tuple[str, ...]
    licences: tuple[str, ...]


def read_libraries(directory: Path = VENDOR) -> Libraries:
    """What set-up fetched. Refusal 3 where it is not there."""
    try:
        text = {name: (directory / name).read_text("utf-8") for name in FILES}
    except FileNotFoundError as error:
        raise Refusal(
            ExitCode.MISSING, f"{error.filename}: is missing: run make setup, which fetches it"
        ) from error
    return Libraries(
        scripts=tuple(text[name] for name in FILES if name.endswith(".js")),
        licences=tuple(text[name] for name in FILES if name.endswith(".txt")),
    )


def unpack(archive: IO[bytes], directory: Path) -> None:
    """Put the wanted files of a tar of ``node_modules`` into ``directory``."""
    directory.mkdir(exist_ok=True)
    with tarfile.open(fileobj=archive) as packages:
        for name, member in FILES.items():
            content = cast("IO[bytes]", packages.extractfile(member))
            partial = directory / f"{name}.partial"
            partial.write_bytes(content.read())
            partial.replace(directory / name)


def main() -> int:
    # The fetcher is set-up's: a report that is made needs none of it.
    from recorder.images.build import CACHE
    from recorder.images.build import FOLDER as IMAGES
    from recorder.images.fetch import Fetcher

    def say(line: str) -> None:
        print(f"setup: {line}", flush=True)

    try:
        fetched = Fetcher(CACHE, say).packages(FOLDER, IMAGES / "session")
        with fetched.path.open("rb") as archive:
            unpack(archive, VENDOR)
    except Refusal as refusal:
        for reason in refusal.reasons:
            print(f"recorder: {reason}", file=sys.stderr)
        return refusal.code
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
