"""YAML as typed nodes: every mistake has its line and column, and nothing is guessed.

Scalars are taken as they are written. YAML 1.1 would read ``answers: [yes, no]`` as two
booleans and ``010`` as eight, so no value here passes through its resolver.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_STANDARD = "tag:yaml.org,2002:"
_NULL = _STANDARD + "null"
# What YAML gives a scalar without a tag of its own; each is read as it is written.
_PLAIN = frozenset(
    _STANDARD + kind
    for kind in ("str", "null", "bool", "int", "float", "timestamp", "merge", "value")
)
_WHOLE = re.compile(r"0|[1-9][0-9]{0,14}")
_DECIMAL = re.compile(r"(0|[1-9][0-9]*)\.[0-9]+")

Loader: type[yaml.SafeLoader] | type[yaml.CSafeLoader] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)


class NodeError(ValueError):
    """A YAML text that is not what it has to be. ``line`` and ``column`` start at 1."""

    def __init__(self, line: int, column: int, reason: str) -> None:
        super().__init__(f"{line}:{column}: {reason}")
        self.line = line
        self.column = column
        self.reason = reason


def compose(text: str) -> Node | None:
    """The one document of a YAML text as nodes, None where it is empty."""
    try:
        return yaml.compose(text, Loader=Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        said = ", ".join(part for part in (error.context, error.problem) if part)
        raise NodeError(line, column, said or "not YAML") from error
    except yaml.YAMLError as error:
        raise NodeError(1, 1, f"not YAML: {str(error).splitlines()[0]}") from error


def fault(node: Node, reason: str) -> NodeError:
    """The error of one node."""
    return NodeError(node.start_mark.line + 1, node.start_mark.column + 1, reason)


def text(node: Node, what: str) -> str:
    """A scalar as it is written, quoted or not. Refuses null and a tag of its own."""
    if not isinstance(node, ScalarNode):
        raise fault(node, f"{what} is not a single value")
    if node.tag not in _PLAIN:
        raise fault(node, f"{what} carries the tag {node.tag}")
    if node.tag == _NULL and not node.style:
        raise fault(node, f"{what} is empty")
    return str(node.value)


def whole_number(node: Node, what: str, *, least: int) -> int:
    """A plain decimal whole number: no quotes, sign, fraction, exponent or leading zero."""
    written = node.value if isinstance(node, ScalarNode) and not node.style else None
    if not isinstance(written, str) or not _WHOLE.fullmatch(written):
        raise fault(node, f"{what} is not a whole number")
    if (number := int(written)) < least:
        raise fault(node, f"{what} is below {least}")
    return number


def fraction(node: Node, what: str) -> float:
    """A plain number strictly between 0 and 1."""
    written = node.value if isinstance(node, ScalarNode) and not node.style else None
    number = float(written) if isinstance(written, str) and _DECIMAL.fullmatch(written) else 0.0
    if not 0.0 < number < 1.0:
        raise fault(node, f"{what} is not a number between 0 and 1")
    return number


def sequence(node: Node, what: str) -> Iterator[Node]:
    """The items of a sequence, in block or flow form."""
    if not isinstance(node, SequenceNode):
        raise fault(node, f"{what} is not a sequence")
    yield from node.value


def mapping(node: Node, what: str) -> Iterator[tuple[str, Node, Node]]:
    """Each key of a mapping with its node and its value's. Refuses a key that comes twice."""
    if not isinstance(node, MappingNode):
        raise fault(node, f"{what} is not a mapping")
    seen: set[str] = set()
    for key, value in node.value:
        name = text(key, f"a key of {what}")
        if name in seen:
            raise fault(key, f"{what} has the key `{name}` twice")
        seen.add(name)
        yield name, key, value


def texts(node: Node, what: str) -> tuple[str, ...]:
    """A sequence of scalars as they are written, none empty and none twice."""
    found: list[str] = []
    for item in sequence(node, what):
        value = text(item, f"an entry of {what}")
        if not value.strip():
            raise fault(item, f"an entry of {what} is empty")
        if value in found:
            raise fault(item, f"{what} holds `{value}` twice")
        found.append(value)
    return tuple(found)
