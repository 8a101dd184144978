"""The recorder: drives coding-agent sessions, watches each from outside, writes what it saw."""

__version__ = "0.1.0"
