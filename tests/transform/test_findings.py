"""What a check printed: the rules by path, or why it is no result; never less than it said."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET

from recorder.transform.findings import Findings, FindingsError, read_findings
from recorder.transform.produced import ProducedFile

names = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1).filter(
    lambda name: name not in (".", "..")
)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
rules = st.text(min_size=1, max_size=5).filter(str.strip)
reports = st.lists(st.tuples(paths, rules), max_size=8)


@given(reports, st.sampled_from(["", "./", "/workspace/", "/workspace/x/../"]), st.booleans())
def test_l38_findings_are_sorted_unique_and_by_exact_path(
    reported: list[tuple[str, str]], lead: str, as_object: bool
) -> None:
    listed = [{"path": lead + path, "rule": rule, "line": 1} for path, rule in reported]
    printed = json.dumps({"findings": listed, "version": 2} if as_object else listed).encode()
    found = read_findings(printed, "/workspace")
    for path, _ in reported:
        own = sorted({rule for other, rule in reported if other == path})
        assert found.over(path) == tuple(own)
        assert found.over(path + "x") == tuple(
            sorted({rule for other, rule in reported if other == path + "x"})
        )
    assert found.count == len(set(reported))


@pytest.mark.parametrize(
    "printed",
    [
        b"", b"\n", b"null", b"{}", b"clean", b"[] []", b'["a"]', b'[{"path": "a"}]',
        b'[{"path": "a", "rule": 1}]', b'[{"path": "a", "rule": " "}]',
        b'[{"path": "", "rule": "r"}]',
        b'{"findings": null}', b"\xff", b'[{"path": "a", "rule": "r", "x": ' + b"[" * 100_000,
    ],
)  # fmt: skip
def test_any_other_text_is_no_empty_list(printed: bytes) -> None:
    with pytest.raises(FindingsError):
        read_findings(printed, "/workspace")


@given(st.binary(max_size=40))
def test_any_bytes_are_a_result_or_say_why_they_are_none(printed: bytes) -> None:
    try:
        found = read_findings(printed, "/workspace")
    except FindingsError:
        return
    assert found.count == 0 or b"rule" in printed


@pytest.mark.parametrize(
    ("path", "digest", "expected"),
    [
        ("a.md", "sha256:0", ("r",)),
        ("b.md", "sha256:0", ()),
        ("a.md", "", UNSET),
        ("/tmp/a.md", "sha256:0", UNSET),
        ("caf\udce9.md", "sha256:0", UNSET),
    ],
    ids=["reported", "clean", "no-file-left", "outside", "no-name-in-json"],
)
def test_an_artifact_without_a_check_has_no_findings(
    path: str, digest: str, expected: object
) -> None:
    attached = Findings({"a.md": ("r",)}).attach(ProducedFile(path, digest, ()))
    assert attached.findings == expected
