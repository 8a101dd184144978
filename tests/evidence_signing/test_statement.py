"""The statement's published schema and what its predicate says of a recorded batch."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from jsonschema import Draft202012Validator

from recorder.evidence import package
from recorder.evidence.package import package_digest
from recorder.evidence.signing import open_envelope
from recorder.evidence.statement import PREDICATE_TYPE, STATEMENT_TYPE, Statement
from recorder.evidence.verification import STATEMENT, predicate_schema


def members(schema: dict[str, Any]) -> dict[str, tuple[list[str], list[str]]]:
    """Each object's members and those that are required, by the object's name."""
    objects = {"Statement": schema, **schema["$defs"]}
    return {
        name: (list(each["properties"]), list(each["required"]))
        for name, each in objects.items()
        if "properties" in each and "required" in each
    }


def test_the_schema_has_the_members_that_a_statement_has() -> None:
    _, made = msgspec.json.schema_components([Statement], ref_template="#/$defs/{name}")
    own = {**made.pop("Statement"), "$defs": made}
    assert members(predicate_schema()) == members(own)
    Draft202012Validator.check_schema(predicate_schema())


def test_the_digest_of_the_recorders_files_is_made_again_with_public_tools(project: Path) -> None:
    assert package.__doc__ is not None
    command = " ".join(package.__doc__.partition("::")[2].split())
    ended = subprocess.run(
        ["bash", "-euc", command], cwd=project, capture_output=True, text=True, check=True
    )
    assert package_digest() == f"sha256:{ended.stdout.split()[0]}"


@pytest.mark.engine
def test_the_predicate_says_what_ran_and_how(signed: Path, signing_key: Ed25519PrivateKey) -> None:
    payload = open_envelope((signed / STATEMENT).read_bytes(), signing_key.public_key())
    statement = json.loads(payload)
    assert (statement["_type"], statement["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    assert list(Draft202012Validator(predicate_schema()).iter_errors(statement)) == []
    names = [subject["name"] for subject in statement["subject"]]
    assert names == sorted(names)
    assert "sessions/L1-campaign-present-p1-r1/raw.jsonl" in names
    predicate = statement["predicate"]
    assert predicate["rehearsal"] is True
    assert predicate["sessions"]["recorded"] == 6
    assert predicate["corroboration"]["disagreeing"] == 0
    assert predicate["construction"]["open"] == []
    assert predicate["construction"]["attempts"] > 20
    assert set(predicate["construction"]["files"]) == {
        "/opt/recorder/guard.py",
        "/opt/recorder/forwarder.py",
        "/opt/harness/claude",
    }
    assert predicate["construction"]["recorder_package"] == package_digest()
    assert {"engine", "kernel", "runc"} <= set(predicate["construction"]["engine"])
    assert sum(len(command["sessions"]) for command in predicate["commands"]) == 6
    for command in predicate["commands"]:
        assert command["argv"][0] == "/opt/harness/claude"
        assert command["network"] == "none"
        assert command["attach"]["before_start"] is True
