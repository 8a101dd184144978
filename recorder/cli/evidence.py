"""The verbs ``verify``, ``sign`` and ``key …``: evidence that a stranger can check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from recorder.batch.table import print_table
from recorder.cli.judge import load, require_trees
from recorder.disciplines.sessions import judge_batch
from recorder.evidence.signing import public_pem
from recorder.evidence.signing_batch import sign_batch
from recorder.evidence.signing_keys import (
    DEFAULT_NAME,
    Trusted,
    key_directory,
    new_key,
    own_key,
    public_of,
    trust,
    trusted_keys,
)
from recorder.evidence.verification import Verification, verify_batch
from recorder.refusal import ExitCode, Refusal
from recorder.report.visible import one_line

key = typer.Typer(help="Keys that sign evidence, and whose are trusted.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    app.command("verify")(verify)
    app.command("sign")(sign)
    app.add_typer(key, name="key")


def verify(
    directory: Annotated[Path, typer.Argument(help="A batch's directory.")],
    signer: Annotated[
        Path | None, typer.Option("--key", help="The public key that has to have signed it.")
    ] = None,
    disciplines: Annotated[
        list[Path] | None,
        typer.Option("--disciplines", "-d", help="Judge it by this file again. Repeatable."),
    ] = None,
    corpus: Annotated[
        list[Path] | None,
        typer.Option(help="A tree whose files are the baseline's texts. Repeatable."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="For a program to read.")] = False,
) -> None:
    """Hold a batch to its signature, its chains and its schemas, and derive it all again."""
    require_trees(corpus or ())
    judged = judge_batch(directory, load(disciplines), corpus or ()) if disciplines else None
    trusted = list(trusted_keys(key_directory()))
    required = None
    if signer is not None:
        required = Trusted(str(signer), public_of(signer))
        trusted.append(required)
    found = verify_batch(directory, trusted=trusted, required=required, judged=judged)
    if as_json:
        typer.echo(json.dumps(_record(found), indent=1))
    else:
        for line in found.said():
            typer.echo(one_line(line))
    if found.faults:
        raise Refusal(ExitCode.CORRUPT, *(f"{directory}/{fault}" for fault in found.faults))


def sign(
    directory: Annotated[Path, typer.Argument(help="A batch's directory.")],
    name: Annotated[str, typer.Option("--key", help="The name of the key.")] = DEFAULT_NAME,
) -> None:
    """Verify a batch, then sign a statement about every file of it."""
    private = own_key(key_directory(), name)
    if private is None:
        raise Refusal(
            ExitCode.MISSING,
            f"{key_directory()}: holds no key {name}: make one with `recorder key new`",
        )
    typer.echo(sign_batch(directory, private))


@key.command("new")
def new(
    name: Annotated[str, typer.Option("--name", help="What to call it.")] = DEFAULT_NAME,
) -> None:
    """Make a key pair outside every batch, readable by nobody else."""
    made = new_key(key_directory(), name)
    typer.echo(f"{key_directory() / f'{name}.key'}: keep it, and publish {made.id}")


@key.command("show")
def show(
    name: Annotated[str | None, typer.Argument(help="One key: its public half in PEM.")] = None,
) -> None:
    """List the keys that are trusted here, or print one."""
    found = trusted_keys(key_directory())
    if name is None:
        table = Table(box=None, pad_edge=False, header_style="bold")
        table.add_column("name")
        table.add_column("key", no_wrap=True)
        for each in found:
            table.add_row(each.name, each.id)
        print_table(table)
        return
    for each in found:
        if each.name == name:
            typer.echo(public_pem(each.key).decode(), nl=False)
            return
    raise Refusal(
        ExitCode.USAGE, f"{key_directory()}: holds no key {name}: see `recorder key show`"
    )


@key.command("trust")
def trust_key(
    name: Annotated[str, typer.Argument(help="What to call whoever signs with it.")],
    file: Annotated[Path, typer.Argument(help="The public key, in PEM.")],
) -> None:
    """Trust another's key. Compare what is printed with what its owner publishes."""
    typer.echo(trust(key_directory(), name, file).id)


def _record(found: Verification) -> dict[str, object]:
    return {
        "schema": "recorder.verification/1",
        "verified": not found.faults,
        "key": found.signature.key,
        "trusted_as": found.signature.name,
        "signed_at": found.signature.signed_at,
        "files": found.files,
        "sessions": found.sessions,
        "transcripts": found.transcripts,
        "without_end": list(found.without_end),
        "faults": [
            {"file": fault.file, "member": fault.member, "what": fault.what}
            for fault in found.faults
        ],
        "said": list(found.said()),
    }
