"""The JSON Schema of a ledger's lines, made of the structs and held more tightly. Pure.

``python -m recorder.ledger.schema > recorder/ledger/ledger.schema.json`` writes what is shipped.
"""

from __future__ import annotations

import json
import typing
from collections.abc import Mapping
from typing import Any

import msgspec

from recorder.ledger.entries import Line

KINDS = typing.get_args(Line)

_DIGEST = {"$ref": "#/$defs/Digest"}
_DOLLARS = {"$ref": "#/$defs/Dollars"}
_DIGESTS = frozenset({"previous", "batch", "sha256"})
_COUNTED_FROM_1 = frozenset({"ts", "run", "sequence", "attempt", "jobs", "parallel"})
_INTEGER = {"type": "integer"}


def made_schema() -> dict[str, Any]:
    """The schema of one line: every member required, none beside them."""
    _, parts = msgspec.json.schema_components([Line], ref_template="#/$defs/{name}")
    made: dict[str, Any] = {name: _tight(part) for name, part in parts.items()}
    for kind in KINDS:
        made[kind.__name__] = {"description": kind.__doc__, **made[kind.__name__]}
    for part in made.values():
        if "description" in part:
            part["description"] = " ".join(part["description"].split())
    made["Digest"] = {"type": "string", "pattern": "^sha256:[0-9a-f]{64}$"}
    made["Dollars"] = {
        "description": "decimal text",
        "type": "string",
        "pattern": r"^\d+(\.\d+)?(E[+-]\d+)?$",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a batch's ledger",
        "description": (
            "ledger.jsonl holds one such object a line. previous is the digest of the line before "
            "it, without its newline; of the first it is sha256: and 64 zeros."
        ),
        "type": "object",
        "required": ["kind"],
        "oneOf": [{"$ref": f"#/$defs/{kind.__name__}"} for kind in KINDS],
        "$defs": dict(sorted(made.items())),
    }


def _tight(part: Any) -> Any:
    """A part of the structs' own schema with what a line's members are bound to besides."""
    if isinstance(part, list):
        return [_tight(each) for each in part]
    if not isinstance(part, dict):
        return part
    if part.get("format") == "decimal":
        return dict(_DOLLARS)
    made = {
        key: {name: _member(name, member) for name, member in value.items()}
        if key == "properties"
        else _tight(value)
        for key, value in part.items()
        if key not in ("title", "default")
    }
    if made.get("properties"):
        made["required"] = list(made["properties"])
        made["additionalProperties"] = False
    return made


def _member(name: str, member: Mapping[str, Any]) -> Any:
    tight = _tight(member)
    if name in _DIGESTS and tight.get("type") == "string":
        return dict(_DIGEST)
    if name == "sha256" and "anyOf" in tight:
        return {"anyOf": [dict(_DIGEST), {"type": "null"}]}
    if name == "files" and tight["type"] == "object":
        return {"type": "object", "additionalProperties": dict(_DIGEST)}
    if len(tight.get("enum", ())) == 1:
        return {"const": tight["enum"][0]}
    least = {**_INTEGER, "minimum": 1 if name in _COUNTED_FROM_1 else 0}
    if tight == _INTEGER:
        return least
    if "anyOf" in tight:
        return {"anyOf": [least if each == _INTEGER else each for each in tight["anyOf"]]}
    return tight


if __name__ == "__main__":
    print(json.dumps(made_schema(), indent=2))
