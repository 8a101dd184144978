"""A batch as JUnit XML, for a build server: a suite a line, a case a session. Pure.

A refused session is a failure of the type of its exit code, one whose files are broken or that has
no end is an error, and one that did not run is skipped.
"""

from __future__ import annotations

from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from recorder.refusal import ExitCode
from recorder.report.view import BatchView, SessionView


def to_junit(view: BatchView, only: Sequence[str] = ()) -> bytes:
    """The document. ``only``: names of the sessions that are wanted; all without it."""
    title = f"Rehearsal: {view.title}" if view.rehearsal else view.title
    root = Element("testsuites", name=title)
    sessions = [each for each in view.sessions if not only or each.name in only]
    keys = dict.fromkeys((each.tier, each.arm) for each in sessions)
    for tier, arm in keys:
        own = [each for each in sessions if (each.tier, each.arm) == (tier, arm)]
        suite = SubElement(
            root,
            "testsuite",
            name=f"{tier} {arm}".strip() or view.title,
            tests=str(len(own)),
            failures=str(sum(each.outcome == "refused" for each in own)),
            errors=str(sum(each.outcome in ("unreadable", "unfinished") for each in own)),
            skipped=str(sum(each.outcome == "not run" for each in own)),
            time=f"{sum(each.seconds or 0 for each in own):.3f}",
        )
        for session in own:
            _case(suite, session)
    indent(root)
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document + b"\n"


def _case(suite: Element, session: SessionView) -> None:
    case = SubElement(
        suite,
        "testcase",
        name=session.name,
        classname=".".join(part for part in (session.tier, session.arm, session.probe) if part),
        time=f"{session.seconds or 0:.3f}",
    )
    match session.outcome:
        case "refused":
            reasons = session.reasons or ("no reason is recorded",)
            failure = SubElement(case, "failure", type=rule(session.code), message=reasons[0])
            failure.text = "\n".join(reasons)
        case "unreadable" | "unfinished":
            reasons = session.faults or ("it was started and has no end",)
            error = SubElement(case, "error", type=session.outcome, message=reasons[0])
            error.text = "\n".join(reasons)
        case "not run":
            SubElement(case, "skipped").text = "not run"
        case "recorded" | "capped":
            pass


def rule(code: int | None) -> str:
    """The rule that a refusal met, by its exit code."""
    try:
        return f"exit {code}: {ExitCode(code or 0).name.lower()}"
    except ValueError:
        return f"exit {code}"
