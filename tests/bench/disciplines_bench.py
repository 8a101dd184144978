"""200 declarations over a session of 500 calls; the target is 300 ms."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from recorder.disciplines.history import UserTurn, read_history
from recorder.disciplines.loading import load_disciplines
from recorder.disciplines.replay import Ended, Tree, replay
from recorder.disciplines.sessions import verdicts
from recorder.transform.produced import Places
from recorder.workspace.manifest import digest_of
from tests.disciplines.made import Call, entry, rules, stream

ROUNDS = 3
CEILING = 0.3
MATCHES = {"op": "matches", "re": "(a+)+$"}

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


def many_declarations() -> bool:
    folder = shared() / "conformance" / "disciplines" / "declarations"
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
    took = []
    for _ in range(ROUNDS):
        began = time.process_time()
        found = list(verdicts(history, replayed, disciplines))
        took.append(time.process_time() - began)
    print(
        f"200 declarations, 500 calls: {len(found)} verdicts in {min(took) * 1000:.0f} ms of "
        f"processor (at most {CEILING * 1000:.0f})"
    )
    return min(took) <= CEILING and len(found) > 10_000


def hostile() -> bool:
    """A pattern that backtracks, over a text that a session chose for it, in every call."""
    slow = entry("slow", {"it": [{"op": "source", "of": "command"}, MATCHES]}, scope="command")
    calls = [Call("Bash", {"command": f"{'a' * 5000}!{number}"}) for number in range(500)]
    history = read_history([stream(calls)], [UserTurn("Do it.", 1748779200000)])
    nothing = Ended({}, frozenset(), True, frozenset(), lambda _: None)
    replayed = replay(history, Tree({}, lambda _: None), nothing, Places(("/workspace",)))
    began = time.process_time()
    found = list(verdicts(history, replayed, load_disciplines(rules(slow), "slow.json")))
    took = time.process_time() - began
    print(f"/(a+)+$/ over 500 hostile calls: {len(found)} verdicts in {took:.1f} s (at most 2)")
    return took <= 2 and {each.event for each in found} == {"blocked"}


def shared() -> Path:
    named = os.environ.get("RECORDER_SHARED")
    return Path(named) if named else Path(__file__).resolve().parents[3] / "shared"


def main() -> int:
    if not shared().is_dir():
        print(f"no reference material at {shared()}: set RECORDER_SHARED")
        return 0
    return 0 if all([many_declarations(), hostile()]) else 1


if __name__ == "__main__":
    sys.exit(main())
