"""The one form of a document, and what an earlier recorder may have left out of it."""

from __future__ import annotations

import json

import msgspec
import pytest

from recorder.evidence.verification_session import form_faults


def written(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"


NOW = {"a": 1, "b": {"c": [1, 2], "d": None}, "e": [], "f": 1.5}


def test_what_is_the_same_has_no_fault() -> None:
    assert list(form_faults(written(NOW), written(NOW))) == []


def test_an_empty_member_may_be_absent() -> None:
    earlier = {"a": 1, "b": {"c": [1, 2]}, "f": 1.5}
    assert list(form_faults(written(earlier), written(NOW))) == []


@pytest.mark.parametrize(
    ("found", "member"),
    [
        ({**NOW, "g": 1}, "g"),
        ({"a": 1, "b": {"d": None}, "e": [], "f": 1.5}, "b.c"),
        ({"b": NOW["b"], "a": 1, "e": [], "f": 1.5}, ""),
        ({**NOW, "a": True}, "a"),
        ({**NOW, "b": {"c": [1, 3], "d": None}}, "b.c[1]"),
    ],
)
def test_any_other_difference_is_named(found: object, member: str) -> None:
    assert [name for name, _ in form_faults(written(found), written(NOW))] == [member]


def test_another_way_of_writing_is_named() -> None:
    for data in (json.dumps(NOW).encode(), written(NOW) + b"\n", written(NOW)[:-1]):
        assert [name for name, _ in form_faults(data, written(NOW))] == [""]
