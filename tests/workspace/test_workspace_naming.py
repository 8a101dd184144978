"""Where a content names a probe or a document, and what cutting it out leaves."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.workspace.cutting import cut
from recorder.workspace.naming import Names, Subject, shared_names, slug_of


def subject(
    path: str, identifier: str | None = None, *, shared: bool = False, is_probe: bool = False
) -> Subject:
    name = path.encode()
    return Subject(
        path=name,
        identifier=identifier.encode() if identifier else None,
        slug=slug_of(name),
        shared=shared,
        is_probe=is_probe,
        title=identifier or path,
    )


PROBE = subject("docs/probes/0001-opened.md", "PROBE-FIX-opened", is_probe=True)
WORD = subject("docs/probes/units.md", "PROBE-FIX-units", is_probe=True)
TWIN = subject("docs/probes/twin.md", "PROBE-FIX-twin", is_probe=True, shared=True)
RECORD = subject("docs/obligations/0013-nothing-says.md", "HW-OBL-0013")
README = subject("docs/evaluations/README.md", shared=True)
GLOSSARY = subject("docs/glossary.md")
ODD = subject("docs/\u00fc b.md", "X.1")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("see PROBE-FIX-opened.", [PROBE]),
        ("PROBE-FIX-opened", [PROBE]),
        ("`PROBE-FIX-opened`/x", [PROBE]),
        ("xPROBE-FIX-opened", []),
        ("PROBE-FIX-opened-too", []),
        ("PROBE-FIX-openedly", []),
        ("probe-fix-opened", []),
        ("docs/probes/0001-opened.md", [PROBE]),
        ("the page 0001-opened here", [PROBE]),
        ("/probes/0001-opened/", [PROBE]),
        ("10001-opened", []),
        ("units are bytes", []),
        ("see units.md", [WORD]),
        ("see twin.md and guides/twin.md", []),
        ("see probes/twin.md", [TWIN]),
        ("docs/probes/units.md", [WORD]),
        ("(../probes/units.md)", [WORD]),
        ("HW-OBL-0013:", [RECORD]),
        ("HW-OBL-00133", []),
        ("0013-nothing-says.md", [RECORD]),
        ("0013-nothing-says.mdx", [RECORD]),
        ("0013-nothing-says", []),
        ("x0013-nothing-says.md", []),
        ("README.md glossary.md let glossary = load();", []),
        ("X.1", [ODD]),
        ("X.12", []),
        ("a/\u00fc b.md", [ODD]),
        ("HW-OBL-0013 PROBE-FIX-opened", [PROBE, RECORD]),
        ("", []),
    ],
)
def test_a_name_needs_its_edges_d10_d17(content: str, found: list[Subject]) -> None:
    names = Names([PROBE, WORD, TWIN, RECORD, README, GLOSSARY, ODD])
    assert list(names.found(content.encode())) == found


def test_a_name_in_bytes_that_are_no_text_is_found_d23() -> None:
    content = b"\x00\xff\xfePROBE-FIX-opened\x00\x80"
    assert Names([PROBE]).found(content) == (PROBE,)


def test_no_subjects_name_nothing() -> None:
    assert Names([]).found(b"anything at all") == ()


@given(
    st.binary(max_size=60),
    st.sampled_from([b"PROBE-FIX-opened", b"0001-opened", b"HW-OBL-0013", b"X.1"]),
    st.binary(max_size=60),
)
def test_a_name_between_edges_is_found_in_any_bytes(
    before: bytes, name: bytes, after: bytes
) -> None:
    names = Names([PROBE, RECORD, ODD])
    assert names.found(before + b" " + name + b"\n" + after)


def test_a_file_name_that_two_paths_have_is_shared() -> None:
    assert shared_names([b"a/README.md", b"b/README.md", b"a/x.md"]) == {b"README.md"}


NAMES = Names([RECORD, ODD])


def left(path: str, content: str) -> str | None:
    result = cut(path.encode(), content.encode(), NAMES)
    return None if result.content is None else result.content.decode()


def test_only_the_lines_that_name_it_go_d06_d07() -> None:
    content = "| HW-OBL-0013 | a |\r\n| HW-OBL-0014 | b |\r\n[x](0013-nothing-says.md)"
    assert left("register.md", content) == "| HW-OBL-0014 | b |\r\n"
    assert cut(b"r.md", content.encode(), NAMES).pieces == {"HW-OBL-0013": 2}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('["HW-OBL-0013", "b"]', '["b"]'),
        ('["a", "HW-OBL-0013"]', '["a"]'),
        ('["a", "HW-OBL-0013", "c"]', '["a", "c"]'),
        ('["HW-OBL-0013"]', "[]"),
        ('["HW-OBL-0013", "0013-nothing-says.md", "c"]', '["c"]'),
        ('["a", "HW-OBL-0013", "0013-nothing-says.md"]', '["a"]'),
        ('[{"id": "HW-OBL-0013", "x": 1}, {"id": "b"}]', '[{"id": "b"}]'),
        ('[{"id": "b", "links": ["HW-OBL-0013", "c"]}]', '[{"id": "b", "links": ["c"]}]'),
        ('[{"id": {"of": "HW-OBL-0013"}}, 1]', "[1]"),
        ('{"a": "HW-OBL-0013", "b": 1.50}', '{"b": 1.50}'),
        ('{"HW-OBL-0013": [1], "b": {"c": 1}}', '{"b": {"c": 1}}'),
        ('{"b": {"c": "x HW-OBL-0013 y"}}', '{"b": {}}'),
        ('{ "k" : [ "HW-OBL-0013" , [ ] , "z" ] }', '{ "k" : [ [ ] , "z" ] }'),
    ],
)
def test_a_json_file_loses_the_innermost_element_and_keeps_every_other_byte(
    before: str, after: str
) -> None:
    assert left("fold.json", before) == after


def test_json_that_does_not_parse_loses_lines() -> None:
    assert left("a.json", '{"a": 1,\n"HW-OBL-0013"\n') == '{"a": 1,\n'


def test_a_json_text_that_is_the_name_itself_leaves_nothing_of_its_line() -> None:
    assert left("a.json", '"HW-OBL-0013"\n') == ""


def test_a_file_that_still_names_it_goes_whole() -> None:
    names = Names([subject("docs/two\nlines-of.md", "X-1")])
    assert cut(b"a.txt", b"see two\nlines-of.md here\n", names).content is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(["HW-OBL-0013", "see HW-OBL-0013 there", "HW-OBL-0014", "\u00fc", 'q"\\'])
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["a", "b", "HW-OBL-0013", "c d"]) | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_every_json_file_still_parses_and_names_nothing(
    value: object, indent: int | None, ascii_only: bool
) -> None:
    if not isinstance(value, list | dict):
        return
    before = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    result = cut(b"fold.json", before, NAMES)
    assert result.content is not None
    assert not NAMES.found(result.content)
    after = json.loads(result.content)
    assert type(after) is type(value)
    if not NAMES.found(before):
        assert result.content == before


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=3))
def test_what_is_left_of_any_file_names_nothing_and_cutting_again_changes_nothing(
    content: bytes, places: list[int]
) -> None:
    for place in places:
        content = content[:place] + b" HW-OBL-0013 " + content[place:]
    result = cut(b"a.md", content, NAMES)
    assert result.content is not None
    assert not NAMES.found(result.content)
    assert cut(b"a.md", result.content, NAMES).content == result.content
