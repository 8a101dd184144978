"""The identifiers of the corpus that appear in an artifact: the same for every probe."""

from __future__ import annotations

import mmap
import re

from recorder.plan.identifiers import compile_identifiers

DEFAULT_CITES_PATTERN = "[A-Z]+-[A-Z]+-[0-9]{4}"

# The same matches as the default pattern. A match never begins inside a run of capitals whose
# start gave none, and without this a megabyte of one letter takes minutes (quadratic).
_GUARDED_DEFAULT = "(?<![A-Z])[A-Z]+-[A-Z]+-[0-9]{4}"


def compile_cites(pattern: str = DEFAULT_CITES_PATTERN) -> re.Pattern[bytes]:
    """The pattern over bytes. Raises ``PatternError`` where a corpus could not declare it."""
    if pattern == DEFAULT_CITES_PATTERN:
        return re.compile(_GUARDED_DEFAULT.encode())
    return compile_identifiers(pattern)


def cites_in(content: bytes | mmap.mmap, pattern: re.Pattern[bytes]) -> tuple[str, ...]:
    """Every identifier, sorted, each once; the artifact's own counts."""
    found = {match.group() for match in pattern.finditer(content)}
    return tuple(sorted(identifier.decode("utf-8", "replace") for identifier in found))
