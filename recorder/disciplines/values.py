"""The values a declaration works on: JSON, with JavaScript's rules for text, order and equality.

The language was defined over JavaScript values, so ``true`` is not ``1``, an absent member is not
``null``, and text is compared by UTF-16 code units.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Hashable, Iterable
from typing import Any, Final, NamedTuple


class Absent:
    """The one value of a member that is not there (JavaScript's ``undefined``)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()


class Unproven:
    """The one value of a fact that is there and that nothing proves: it is never guessed."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNPROVEN"


UNPROVEN: Final = Unproven()

# What JavaScript's trim() and \s take for white space; Python's differ in both directions.
WHITE_SPACE = (
    "\t\n\x0b\x0c\r \xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)

_LARGEST_EXACT = 1 << 53
_INDEX = re.compile(r"0|[1-9][0-9]{0,9}")
_LARGEST_INDEX = (1 << 32) - 2


class Item(NamedTuple):
    """One element of an extraction."""

    key: str
    value: Any


Items = tuple[Item, ...]
NOTHING: Items = ()


class Snapshot(dict[str, Any]):
    """The session's history before one observation, as the JSON object that declarations read.

    ``uses`` may answer ``toolUses`` from an index over the whole session; without one (None) the
    step reads ``toolCalls`` itself. The result is the same tuple while nothing new matches, so
    that what follows from it is not computed again.
    """

    __slots__ = ("index",)

    def __init__(self, content: dict[str, Any], index: Any = None) -> None:
        super().__init__(content)
        self.index = index


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def is_object(value: Any) -> bool:
    """A JSON object; an array is none."""
    return isinstance(value, dict)


def parse_json(text: str) -> Any:
    """What ``JSON.parse`` gives. Raises ``ValueError`` for any other text, or one nested too deep.

    A number beyond 2**53 is the double next to it, as it is in JavaScript.
    """
    try:
        return json.loads(text, parse_int=_integer, parse_constant=_no_constant)
    except RecursionError as error:
        raise ValueError("is nested too deeply") from error


def _integer(digits: str) -> int | float:
    if len(digits) < 16:
        return int(digits)
    number = float(digits)
    return int(number) if abs(number) <= _LARGEST_EXACT else number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def text_of(value: Any) -> str:
    """JavaScript's ``String(value)``."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case None:
            return "null"
        case int() | float():
            return _number_text(value)
        case list():
            return ",".join("" if v is None or v is ABSENT else text_of(v) for v in value)
        case Absent():
            return "undefined"
        case _:
            return "[object Object]"


def _number_text(number: float) -> str:
    if isinstance(number, int) and abs(number) <= _LARGEST_EXACT:
        return str(number)
    number = float(number)
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if number == 0:
        return "0"
    # Python and JavaScript print the same shortest digits and differ in where an exponent starts.
    sign, digits, exponent = _parts(repr(abs(number)))
    point = len(digits) + exponent
    if len(digits) <= point <= 21:
        text = digits + "0" * (point - len(digits))
    elif 0 < point <= 21:
        text = f"{digits[:point]}.{digits[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + digits
    else:
        fraction = f".{digits[1:]}" if len(digits) > 1 else ""
        text = f"{digits[0]}{fraction}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return ("-" if number < 0 else sign) + text


def _parts(shortest: str) -> tuple[str, str, int]:
    """The significant digits of a positive double's repr, and the power of ten they stand at."""
    mantissa, _, power = shortest.partition("e")
    whole, _, fraction = mantissa.partition(".")
    exponent = (int(power) if power else 0) - len(fraction)
    digits = (whole + fraction).lstrip("0")
    stripped = digits.rstrip("0")
    return "", stripped, exponent + len(digits) - len(stripped)


def identity(value: Any) -> Hashable:
    """What two values share exactly where they are structurally equal."""
    match value:
        case str():
            return value
        case None:
            return ("null",)
        case bool():
            return ("boolean", value)
        case int() | float():
            return ("number", value)
        case list():
            return ("array", tuple(map(identity, value)))
        case dict():
            return ("object", frozenset((key, identity(v)) for key, v in value.items()))
        case _:
            return ("absent",)


def member(value: Any, name: str) -> Any:
    """A member of an object, ABSENT where there is none or the value is no object."""
    return value.get(name, ABSENT) if isinstance(value, dict) else ABSENT


def member_names(value: dict[str, Any]) -> Iterable[str]:
    """An object's member names in JavaScript's order: array indices first, by number."""
    indices = [n for n in value if _INDEX.fullmatch(n) and int(n) <= _LARGEST_INDEX]
    if not indices:
        return value
    rest = [name for name in value if name not in set(indices)]
    return [*sorted(indices, key=int), *rest]


def code_units(text: str) -> str:
    """The text as UTF-16 code units, one character each."""
    if text.isascii() or max(text) <= "\uffff":
        return text
    raw = text.encode("utf-16-be", "surrogatepass")
    return "".join(chr(raw[i] << 8 | raw[i + 1]) for i in range(0, len(raw), 2))


def from_code_units(units: str) -> str:
    """The text whose code units these are; half a pair stays what it is."""
    if units.isascii():
        return units
    return units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")


def before(left: Any, right: Any) -> bool:
    """Whether ``left`` comes before ``right``: as numbers where both are, else as text."""
    if is_number(left) and is_number(right):
        return bool(left < right)
    return code_units(text_of(left)) < code_units(text_of(right))
