"""The JSON Schema of a file of disciplines, built from the tables that the loader uses.

What it cannot say, the loader checks alone: that references exist and make no circle, that
identifiers are unique, that a pattern can be meant, and what a mechanism admits.
"""

from __future__ import annotations

from typing import Any

from recorder.disciplines.catalogue import (
    BINDING_AXES,
    COMBINATORS,
    FIXED_SOURCES,
    MECHANISMS,
    PAIRED_SOURCE,
    SCOPE_SOURCES,
)
from recorder.disciplines.loading import LEVELS, POLICIES
from recorder.disciplines.relations import RELATION_KINDS, RelationKind
from recorder.disciplines.steps import CONDITION_OPERATORS, STEPS, Argument, StepKind

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_NAME: dict[str, Any] = {"type": "string", "minLength": 1}
_TEXT: dict[str, Any] = {"type": "string"}


def schema() -> dict[str, Any]:
    """The schema of a file: its entries, or one declaration under ``discipline``."""
    block = _block()
    return {
        "$schema": _DIALECT,
        "title": "Disciplines",
        "oneOf": [
            _closed(
                {
                    "disciplines": {"type": "array", "items": {"$ref": "#/$defs/entry"}},
                    "protectedPaths": {"type": "array", "items": _NAME},
                },
                ("disciplines",),
            ),
            _closed({"discipline": _NAME, **block}, ("discipline", *_REQUIRED)),
        ],
        "$defs": {
            "entry": {
                "oneOf": [
                    _closed(
                        {
                            "id": _NAME,
                            "why": _NAME,
                            "enforce": {"enum": list(LEVELS)},
                            "declare": _closed(block, _REQUIRED),
                        },
                        ("id", "declare"),
                    ),
                    _closed({"id": _NAME, "why": _NAME, "draft": {"const": True}}),
                ]
            },
            "extract": {
                "type": "object",
                "propertyNames": _NAME,
                "additionalProperties": {
                    "type": "array",
                    "minItems": 1,
                    "prefixItems": [{"oneOf": _first_steps()}],
                    "items": {"oneOf": [_step(kind) for kind in STEPS.values()]},
                },
            },
            "relate": {
                "type": "array",
                "minItems": 1,
                "items": {"oneOf": [_relate(kind) for kind in RELATION_KINDS.values()]},
            },
        },
    }


_REQUIRED = ("mechanism", "extract", "relate")


def _closed(properties: dict[str, Any], required: tuple[str, ...] | None = None) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties if required is None else required),
        "properties": properties,
    }


def _block() -> dict[str, Any]:
    extract, relate = {"$ref": "#/$defs/extract"}, {"$ref": "#/$defs/relate"}
    return {
        "mechanism": {"enum": [row.name for row in MECHANISMS.values() if not row.reserved]},
        "scope": _closed(
            {
                "source": {
                    "type": "string",
                    "minLength": 1,
                    "not": {"enum": sorted(set(FIXED_SOURCES) - set(SCOPE_SOURCES))},
                },
                "include": {"type": "array", "items": _TEXT},
                "exclude": {"type": "array", "items": _TEXT},
                "excludeIgnoreCase": {"type": "boolean"},
            },
            ("source",),
        ),
        "sources": {
            "type": "object",
            "propertyNames": {**_NAME, "not": {"enum": list(FIXED_SOURCES)}},
            "additionalProperties": {"oneOf": [_binding(kind) for kind in BINDING_AXES]},
        },
        "supply": {
            "type": "object",
            "properties": {PAIRED_SOURCE: {"enum": list(POLICIES[:2])}},
            "additionalProperties": {"enum": list(POLICIES)},
        },
        "extract": extract,
        "relate": relate,
        "witness": _closed({"extract": extract, "relate": relate}, ("relate",)),
    }


def _binding(kind: str) -> dict[str, Any]:
    if kind == "file":
        climbing = r"^(?!/)(?!(.*/)?\.\.(/|$))"
        return _closed({kind: {"type": "string", "minLength": 1, "pattern": climbing}})
    return _closed({kind: {"const": True}})


def _first_steps() -> list[dict[str, Any]]:
    two = {"type": "array", "minItems": 2, "maxItems": 2, "uniqueItems": True, "items": _NAME}
    steps = [_closed({"op": {"const": "source"}, "of": _NAME})]
    for op in COMBINATORS:
        if op == "onlyIn":
            steps.append(_closed({"op": {"const": op}, "of": _NAME, "notIn": _NAME}))
        else:
            steps.append(_closed({"op": {"const": op}, "of": two}))
    return steps


def _step(kind: StepKind) -> dict[str, Any]:
    return _closed(
        {"op": {"const": kind.op}, **{each.name: _argument(each) for each in kind.arguments}},
        ("op", *(each.name for each in kind.arguments if each.required)),
    )


def _argument(argument: Argument) -> dict[str, Any]:
    match argument.kind:
        case "flag":
            return {"type": "boolean"}
        case "texts":
            return {"type": "array", "items": _TEXT}
        case "conditions":
            return {
                "type": "array",
                "items": {
                    "oneOf": [
                        _closed({"field": _TEXT, operator: _operand(operator)})
                        for operator in CONDITION_OPERATORS
                    ]
                },
            }
        case _:
            return _TEXT


def _operand(operator: str) -> dict[str, Any]:
    if operator == "notIn":
        return {"type": "array"}
    return {} if operator in ("eq", "ne") else {"type": "number"}


def _relate(kind: RelationKind) -> dict[str, Any]:
    two = {"type": "array", "minItems": 2, "maxItems": 2, "uniqueItems": True, "items": _NAME}
    properties: dict[str, Any] = {"op": {"const": kind.op}}
    properties |= dict.fromkeys(kind.names, two if kind.pair_of else _NAME)
    if kind.strict:
        properties["strict"] = {"type": "boolean"}
    relation = _closed(properties, ("op", *kind.names))
    plain = _closed({"id": _NAME, "relation": relation, "message": _NAME})
    if kind.op != "equal":
        return plain
    sides = _closed({"left": _NAME, "right": _NAME})
    return {"oneOf": [plain, _closed({"id": _NAME, "relation": relation, "messageBySide": sides})]}
