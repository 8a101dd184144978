"""200 declarations over a session of 500 calls; the target is 300 ms."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from recorder.disciplines.history import UserTurn, read_history
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.replay import Ended, Tree, replay
from recorder.disciplines.sessions import verdicts
from recorder.transform.produced import Places
from recorder.workspace.manifest import digest_of
from tests.disciplines.made import Call, stream

PATHS = (
    "lib/a.txt",
    "apps/app/src/foo.tsx",
    "docs/ledger/m.json",
    "packages/a/__tests__/x.test.ts",
    "records/archive/x",
    "README.md",
)


def _varied(value: Any, number: int) -> Any:
    """A declaration whose patterns are its own, so that none shares another's work."""
    if isinstance(value, dict):
        return {
            key: f"{each}(?:|{number})" if key == "re" else _varied(each, number)
            for key, each in value.items()
        }
    return [_varied(each, number) for each in value] if isinstance(value, list) else value


def _call(number: int) -> Call:
    path = f"/workspace/{PATHS[number % len(PATHS)]}"
    if number % 100 == 50:
        return Call("Agent", {"subagent_type": "tdd-test-writer", "prompt": "x"})
    if number % 5 < 2:
        return Call("Bash", {"command": f"ls dir{number} && grep -n x file{number % 7}"})
    if number % 5 == 2:
        return Call("Read", {"file_path": path})
    text = "\n".join(f"line {line} of {number % 9}" for line in range(40))
    return Call("Write", {"file_path": path, "content": text})


@pytest.mark.bench
def test_two_hundred_declarations_over_five_hundred_calls(shared: Path) -> None:
    folder = shared / "conformance" / "disciplines" / "declarations"
    declared = [json.loads(path.read_text("utf-8")) for path in sorted(folder.glob("*.json"))]
    entries = []
    for number in range(200):
        block = _varied(declared[number % len(declared)], number)
        entries.append({"id": f"{block.pop('discipline')}-{number}", "declare": block})
    disciplines = load_disciplines(json.dumps({"disciplines": entries}).encode(), "bench.json")
    calls = [_call(number) for number in range(500)]
    last = {
        call.given["file_path"].removeprefix("/workspace/"): call.given["content"].encode()
        for call in calls
        if call.tool == "Write"
    }
    history = read_history([stream(calls)], [UserTurn("Do it.", 1748779200000)])
    locales = {"locales/ko.json": b'{"a": 1}', "locales/en.json": b'{"a": 2}'}
    replayed = replay(
        history,
        Tree({path: digest_of(text) for path, text in locales.items()}, locales.get),
        Ended(
            {path: digest_of(text) for path, text in last.items()},
            frozenset(),
            True,
            frozenset(),
            {digest_of(text): text for text in last.values()}.get,
        ),
        Places(("/workspace",)),
    )
    assert replayed.unproven == ()
    best = 10.0
    for _ in range(3):
        began = time.process_time()
        found = list(verdicts(history, replayed, disciplines))
        best = min(best, time.process_time() - began)
    print(
        f"\n200 declarations, 500 calls: {len(found)} verdicts in {best * 1000:.0f} ms of processor"
    )
    assert len(found) > 10_000
    # The target is 300 ms; a machine that runs other things beside this one is given three times.
    assert best < 0.9
