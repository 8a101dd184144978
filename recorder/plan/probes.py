"""The documents of a corpus, and of a probe what a plan and a recorder read of it.

A recorder reads of a probe its task and its declared answers. The expected values are the
grader's, so nothing here parses them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from yaml.nodes import MappingNode, Node

from recorder.plan import nodes
from recorder.plan.nodes import NodeError, fault
from recorder.workspace.manifest import digest_of

CATEGORIES = ("discovery", "sufficiency", "navigability", "consistency")
EXPECTATIONS = ("opened", "not_opened", "cited", "answered", "patched")
NAMES_DOCUMENTS = frozenset({"opened", "not_opened", "cited"})
NO_ORACLE = "none"

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")
_IDENTIFIER = re.compile(
    rb"^id:[ \t]+([A-Za-z0-9][^\s#'\"\[\]{},&*!|>%@`]*)[ \t]*\r?$", re.MULTILINE
)
_PROBE_KEYS = re.compile(rb"^['\"]?(?:probe_category|expectation)['\"]?[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Document:
    """A document with front matter. ``path`` is relative to the corpus, ``digest`` of its bytes.

    ``identifier`` is None where its front matter names none.
    """

    path: str
    digest: str
    identifier: str | None


@dataclass(frozen=True, slots=True)
class Probe:
    """One probe document. ``answers`` are sorted and distinct, empty where none are declared.

    ``task`` is the body of ``## Task`` word for word, without the blank lines around it.
    ``examines`` are as written: an identifier of the corpus, or a path.
    """

    id: str
    path: str
    category: str
    expectation: str
    oracle: str
    answers: tuple[str, ...]
    task: str
    examines: tuple[str, ...]
    digest: str

    @property
    def slug(self) -> str:
        """The name of its file without ``.md``."""
        return self.path.rpartition("/")[2].removesuffix(".md")


def front_matter(content: bytes) -> bytes | None:
    """The lines between the first line ``---`` and the next one, None where there is no such
    block."""
    lines = content.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    if not lines or lines[0].rstrip() != b"---":
        return None
    for at, line in enumerate(lines[1:], start=1):
        if line.rstrip() == b"---":
            return b"".join(lines[1:at])
    return None


def read_document(path: str, content: bytes) -> Document | None:
    """The document of a file, None where it has no front matter."""
    block = front_matter(content)
    if block is None:
        return None
    plain = _IDENTIFIER.search(block)
    identifier = plain.group(1).decode() if plain else _identifier_of(block)
    return Document(path, digest_of(content), identifier)


def _identifier_of(block: bytes) -> str | None:
    """The identifier where it is not one plain word on a line of its own."""
    if b"id" not in block:
        return None
    root = nodes.compose(block.decode("utf-8"))
    if not isinstance(root, MappingNode):
        return None
    for name, _, value in nodes.mapping(root, "the front matter"):
        if name == "id":
            return nodes.text(value, "`id`")
    return None


def is_probe(content: bytes) -> bool:
    """Whether a document declares a category or an expectation of a probe."""
    block = front_matter(content)
    return block is not None and _PROBE_KEYS.search(block) is not None


@dataclass(frozen=True, slots=True)
class ProbeFault:
    """Why a probe document cannot be planned, in the words of a refusal."""

    path: str
    reason: str


def read_probe(path: str, content: bytes) -> Probe | ProbeFault:
    """Read a probe document, or its first fault in the order in which a plan refuses.

    no identifier, category, expectation, oracle, names no document, answers, task
    """
    try:
        written = content.decode("utf-8")
        fields = _read_fields(front_matter(content) or b"")
        answers = declared_answers(written)
        task = task_of(written)
    except UnicodeDecodeError:
        return ProbeFault(path, "is not UTF-8")
    except NodeError as error:
        return ProbeFault(path, f"line {error.line}, column {error.column}: {error.reason}")
    reason = (
        _fields_fault(fields)
        or _answers_fault(fields.expectation, answers)
        or ("has no task: its `## Task` section is missing or empty" if not task else None)
    )
    if reason is not None:
        return ProbeFault(path, reason)
    return Probe(
        id=fields.identifier,
        path=path,
        category=fields.category,
        expectation=fields.expectation,
        oracle=fields.oracle,
        answers=answers,
        task=task or "",
        examines=fields.examines,
        digest=digest_of(content),
    )


@dataclass(frozen=True, slots=True)
class _Fields:
    identifier: str
    category: str
    expectation: str
    oracle: str
    examines: tuple[str, ...]


def _read_fields(block: bytes) -> _Fields:
    values = {"id": "", "probe_category": "", "expectation": "", "oracle": NO_ORACLE}
    examines: tuple[str, ...] = ()
    root = _shifted(block.decode("utf-8"), 1)
    for name, _, value in nodes.mapping(root, "the front matter"):
        if name in values:
            values[name] = nodes.text(value, f"`{name}`")
        elif name == "relations":
            for relation, _, targets in nodes.mapping(value, "`relations`"):
                if relation == "examines":
                    examines = nodes.texts(targets, "`examines`")
    return _Fields(
        values["id"], values["probe_category"], values["expectation"], values["oracle"], examines
    )


def _shifted(text: str, lines: int) -> Node:
    """Compose a block that starts ``lines`` below the top of its file, so that lines agree."""
    root = nodes.compose("\n" * lines + text)
    if root is None:
        raise NodeError(lines, 1, "the front matter is empty")
    return root


def _fields_fault(fields: _Fields) -> str | None:
    if not fields.identifier:
        return "has no `id`"
    if fields.category not in CATEGORIES:
        return f"has the category `{fields.category}`; categories are {', '.join(CATEGORIES)}"
    if fields.expectation not in EXPECTATIONS:
        return f"expects `{fields.expectation}`; expectations are {', '.join(EXPECTATIONS)}"
    if fields.expectation == "patched" and fields.oracle == NO_ORACLE:
        return "expects `patched` and names no oracle"
    if fields.expectation != "patched" and fields.oracle != NO_ORACLE:
        return f"expects `{fields.expectation}` and names the oracle `{fields.oracle}`"
    if fields.expectation in NAMES_DOCUMENTS and not fields.examines:
        return f"expects `{fields.expectation}` and examines no document"
    return None


def _answers_fault(expectation: str, answers: tuple[str, ...]) -> str | None:
    if expectation == "answered" and not answers:
        return "expects `answered` and declares no `answers`"
    if expectation != "answered" and answers:
        return f"expects `{expectation}` and declares `answers`"
    return None


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    text: str
    fenced: bool


def _lines(content: str) -> Iterator[_Line]:
    """The lines with their ends, numbered from 1, and whether each is in or of a code fence."""
    fence: str | None = None
    for number, line in enumerate(_split(content), start=1):
        found = _FENCE.fullmatch(line.rstrip("\r\n"))
        if fence is None and found and not ("`" in found.group(2) and found.group(1)[0] == "`"):
            fence = found.group(1)
            yield _Line(number, line, True)
        elif fence is not None:
            yield _Line(number, line, True)
            closes = found and found.group(1).startswith(fence) and not found.group(2).strip()
            fence = None if closes else fence
        else:
            yield _Line(number, line, False)


def _split(content: str) -> list[str]:
    """Lines that end with a line feed only: a form feed in a task does not end its line."""
    pieces = content.split("\n")
    ended = [piece + "\n" for piece in pieces[:-1]]
    return [*ended, pieces[-1]] if pieces[-1] else ended


def section(content: str, title: str) -> list[tuple[int, str]]:
    """The numbered lines of a ``## title`` section, to the next heading of its level or above.

    A heading inside a code fence is text. Raises ``NodeError`` where the section comes twice.
    """
    found: list[tuple[int, str]] = []
    inside = seen = False
    for line in _lines(content):
        heading = None if line.fenced else _heading(line.text)
        if heading is not None and heading[0] <= 2:
            inside = heading == (2, title)
            if inside and seen:
                raise NodeError(line.number, 1, f"a second `## {title}` section")
            seen = seen or inside
        elif inside:
            found.append((line.number, line.text))
    return found


def _heading(line: str) -> tuple[int, str] | None:
    marks = len(line) - len(line.lstrip("#"))
    if marks == 0 or not line[marks : marks + 1].isspace():
        return None
    return marks, line[marks:].strip()


def task_of(content: str) -> str | None:
    """The body of ``## Task`` word for word, less the blank lines around it; None where none."""
    body = "".join(line for _, line in section(content, "Task"))
    lines = body.split("\n")
    while lines and not lines[0].strip():
        del lines[0]
    while lines and not lines[-1].strip():
        del lines[-1]
    return "\n".join(lines).removesuffix("\r") or None


def declared_answers(content: str) -> tuple[str, ...]:
    """The ``answers`` of the fenced yaml block of ``## Expectation``, sorted and distinct."""
    answers: tuple[str, ...] | None = None
    for start, block in _yaml_blocks(section(content, "Expectation")):
        root = nodes.compose("\n" * (start - 1) + block)
        if root is None or not isinstance(root, MappingNode):
            continue
        for name, key, value in nodes.mapping(root, "the yaml block"):
            if name != "answers":
                continue
            if answers is not None:
                raise fault(key, "a second `answers`")
            answers = tuple(
                nodes.text(item, "an answer") for item in nodes.sequence(value, "`answers`")
            )
            if any(not answer.strip() for answer in answers):
                raise fault(value, "an answer is empty")
    return tuple(sorted(set(answers or ())))


def _yaml_blocks(lines: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Each fenced yaml block of a section, with the number of its first line."""
    fence: str | None = None
    is_yaml = False
    start, block = 0, ""
    for number, line in lines:
        found = _FENCE.fullmatch(line.rstrip("\r\n"))
        if fence is None:
            if found:
                fence, start, block = found.group(1), number + 1, ""
                is_yaml = found.group(2).strip().lower() in ("yaml", "yml")
        elif found and found.group(1).startswith(fence) and not found.group(2).strip():
            if is_yaml:
                yield start, block
            fence = None
        else:
            block += line
