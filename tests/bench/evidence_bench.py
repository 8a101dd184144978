"""How long a batch of 600 sessions takes to be verified and to be made into a report.

The batch is the example's, recorded, then every session again and again under other names, with
everything that names it made anew: logs, ledger, order, transcripts. It has to verify without a
fault, or nothing was measured. Run as a program:
``python tests/bench/evidence_bench.py [REPEATS]``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

PROJECT_ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(PROJECT_ROOT))

from proxy.egress import START, digest_of_line  # noqa: E402
from recorder.batch.schedule import slots  # noqa: E402
from recorder.evidence import verification  # noqa: E402

REPEATS = 100
VERIFY_SECONDS, REPORT_SECONDS = 10.0, 5.0


def grown(batch: Path, out: Path, repeats: int) -> int:
    """``out``: the batch with each session ``repeats`` times; how many sessions it has."""
    for name in ("plans", "arms", "evidence"):
        shutil.copytree(batch / name, out / name)
    (out / "batch.lock").touch()
    pinned = json.loads((batch / "batch.json").read_text())
    lines = pinned["lines"]
    for line in lines:
        line["repetitions"] = repeats
    members = [(line["tier"], line["arm"], len(line["probes"]), repeats) for line in lines]
    order = slots(members, pinned["seed"])
    pinned["order"] = [slot.name for slot in order]
    document = json.dumps(pinned, indent=2, ensure_ascii=False) + "\n"
    (out / "batch.json").write_text(document)
    for slot in order:
        first = f"{slot.name.rpartition('-r')[0]}-r1"
        _session(batch / "sessions" / first, out / "sessions" / slot.name)
    entries = [json.loads(line) for line in (batch / "ledger.jsonl").read_bytes().splitlines()]
    (out / "ledger.jsonl").write_bytes(_chained(_ledger(entries, out, document)))
    _assemble(out, [f"L{n}-{line['tier']}-{line['arm']}" for n, line in enumerate(lines, 1)])
    return len(order)


def _session(source: Path, place: Path) -> None:
    shutil.copytree(source, place)
    for name in ("evidence.json", "record.md", "event.yaml"):
        path = place / name
        path.write_text(path.read_text().replace(source.name, place.name))
    log = [json.loads(line) for line in (place / "egress.jsonl").read_bytes().splitlines()]
    for line in log:
        line["session"] = place.name
    (place / "egress.jsonl").write_bytes(_chained(log))


def _chained(entries: list[dict[str, Any]]) -> bytes:
    previous, written = START, []
    for number, entry in enumerate(entries, start=1):
        changed = {"sequence": number, "previous": previous}
        line = json.dumps({**entry, **changed}, separators=(",", ":"), ensure_ascii=False).encode()
        written.append(line + b"\n")
        previous = digest_of_line(line)
    return b"".join(written)


def _ledger(entries: list[dict[str, Any]], out: Path, document: str) -> list[dict[str, Any]]:
    """A run in which the sessions ran one after another, each as its first did."""
    by_name: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if "session" in entry:
            by_name.setdefault(entry["session"], []).append(entry)
    begin, end = entries[0], entries[-1]
    names = sorted(place.name for place in (out / "sessions").iterdir())
    begin["batch"] = f"sha256:{hashlib.sha256(document.encode()).hexdigest()}"
    begin["jobs"] = len(names)
    made = [begin]
    for name in names:
        for entry in by_name[f"{name.rpartition('-r')[0]}-r1"]:
            changes: dict[str, Any] = {"session": name}
            if entry["kind"] == "session:end":
                changes["files"] = dict(sorted(_digests(out / "sessions" / name)))
            if "slot" in entry:
                changes |= {"slot": 0}
            made.append({**entry, **changes})
    factor = len(names) // len(by_name)
    made.append({**end, "totals": _times(end["totals"], factor)})
    return made


def _times(totals: Mapping[str, Any], factor: int) -> dict[str, Any]:
    def times(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: times(each) for name, each in value.items()}
        if isinstance(value, int):
            return value * factor
        return str(Decimal(value) * factor) if isinstance(value, str) else value

    return {name: times(value) for name, value in totals.items()}


def _digests(place: Path) -> Iterator[tuple[str, str]]:
    for path in place.rglob("*"):
        if path.is_file():
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            yield path.relative_to(place).as_posix(), f"sha256:{digest}"


def _assemble(out: Path, names: list[str]) -> None:
    """The transcripts as verification gives them: it is asked what it would have."""
    texts: list[str] = []
    own = verification.assemble

    def kept(*arguments: Any) -> str:
        texts.append(own(*arguments))
        return texts[-1]

    (out / "assembled").mkdir()
    for name in names:
        (out / "assembled" / f"{name}.md").write_text("")
    verification.assemble = kept  # type: ignore[assignment]
    verification.verify_batch(out)
    verification.assemble = own
    for name, text in zip(names, texts, strict=True):
        (out / "assembled" / f"{name}.md").write_text(text)


def timed(*arguments: str | Path) -> float:
    """Seconds of wall clock of a whole command, the start of its interpreter among them."""
    started = time.monotonic()
    ended = subprocess.run(
        [sys.executable, "-m", "recorder", *map(str, arguments)],
        cwd=PROJECT_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - started
    if ended.returncode != 0:
        raise SystemExit(f"{arguments[0]} ended with {ended.returncode}: {ended.stderr[:2000]}")
    return seconds


def main(repeats: int = REPEATS) -> int:
    from tests.report.recorded import recorded_batch

    work = Path(tempfile.mkdtemp(prefix="recorder-bench-", dir="/var/tmp"))
    try:
        out = work / "out"
        out.mkdir()
        sessions = grown(recorded_batch(), out, repeats)
        size = sum(path.stat().st_size for path in out.rglob("*") if path.is_file())
        print(f"{sessions} sessions, {size / 1e6:.0f} MB, {os.cpu_count()} cores")
        missed = False
        for verb, bound, arguments in (
            ("verify", VERIFY_SECONDS, (out,)),
            ("report", REPORT_SECONDS, (out, "--out", work / "report.html")),
        ):
            seconds = min(timed(verb, *arguments) for _ in range(2))
            missed |= seconds > bound
            print(f"{verb}: {seconds:.1f} s, of {bound:.0f} s")
        print(f"the report has {(work / 'report.html').stat().st_size / 1e6:.2f} MB")
    finally:
        shutil.rmtree(work)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:2])))
