"""What a verification finds: the file, the member of it that disagrees, and how."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Fault:
    """``member`` is empty where the file as a whole is at fault."""

    file: str
    member: str
    what: str

    def __str__(self) -> str:
        where = f"{self.file}: {self.member}" if self.member else self.file
        return f"{where}: {self.what}"
