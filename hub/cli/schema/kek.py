"""[edge] ``hub kek``: keys of field encryption, at the running server (docs/how-to/encrypt-fields.md)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError, NotFound

app = typer.Typer(
    help="Key encryption keys (KEKs) of field encryption, and the data keys (DEKs) that they wrap.",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Examples: hub kek create pii --kms local-kms://people; hub kek show pii",
)

_ROOT = "/dek-registry/v1/keks"
NameArgument = Annotated[str, typer.Argument(help="The KEK, by its name")]


@app.command("ls")
def list_keks(output: OutputOption = Output.table) -> None:
    """List the KEKs, with the key of the key management service (KMS) of each.

    Example: hub kek ls
    """
    rows = [_row(http.get(f"{_ROOT}/{quote(name)}")) for name in http.get(_ROOT)]
    show(rows, output, ("kek", "kms key", "shared", "subjects", "created", "about"))


@app.command("show")
def show_kek(name: NameArgument, output: OutputOption = Output.table) -> None:
    """Show the data keys of a KEK: subject, algorithm and version. Keys themselves are never shown.

    Example: hub kek show pii
    """
    kek = http.get(f"{_ROOT}/{quote(name)}")
    rows = []
    for subject in http.get(f"{_ROOT}/{quote(name)}/deks"):
        place = f"{_ROOT}/{quote(name)}/deks/{quote(subject, safe='')}/versions"
        for algorithm in ("AES128_GCM", "AES256_GCM", "AES256_SIV"):
            for version in http.get(place, {"algorithm": algorithm}):
                rows.append({"subject": subject, "algorithm": algorithm, "version": version})
    if output is Output.json:
        show_one({**_row(kek), "deks": rows}, output)
        return
    note(f'KEK "{name}" uses the KMS key {_kms_key(kek)}{", and is shared" if kek["shared"] else ""}.')
    show(rows, output, ("subject", "algorithm", "version"))


@app.command("create")
def create(
    name: NameArgument,
    kms: Annotated[str, typer.Option("--kms", help="The key of the KMS, as TYPE://KEY")],
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Let the hub unwrap data keys for clients without access to the KMS"),
    ] = False,
    about: Annotated[str | None, typer.Option("--about", help="Purpose of the key")] = None,
) -> None:
    """Create a KEK: the name under which rules of schemas use a key of a KMS.

    Example: hub kek create pii --kms "hcvault://https://vault:8200/transit/keys/pii"
    """
    kms_type, colon, key_id = kms.partition("://")
    if not colon or not kms_type or not key_id:
        raise CallerError(
            f'"{kms}" is not a key of a KMS',
            hint="write it as TYPE://KEY, such as local-kms://people or aws-kms://arn:aws:kms:…",
            code="HUB-1218",
        )
    body = {"name": name, "kmsType": kms_type, "kmsKeyId": key_id, "shared": shared, "doc": about}
    made = http.post(_ROOT, body)
    note(f'Created the KEK "{name}" with the KMS key {_kms_key(made)}.')


@app.command("rotate")
def rotate(
    name: NameArgument,
    subject: Annotated[str, typer.Argument(help="The subject, such as crm.persons-value")],
    algorithm: Annotated[str, typer.Option("--algorithm", help="The data key's algorithm")] = "AES256_GCM",
) -> None:
    """Make a new version of a subject's data key. Writers of rules with encrypt.dek.expiry.days use it from
    then on; older records stay readable with the older versions.

    Example: hub kek rotate pii crm.persons-value
    """
    kek = http.get(f"{_ROOT}/{quote(name)}")
    place = f"{_ROOT}/{quote(name)}/deks/{quote(subject, safe='')}"
    versions = http.get(f"{place}/versions", {"algorithm": algorithm})
    if not versions:
        raise NotFound(
            f'KEK "{name}" has no data key of subject "{subject}" with {algorithm}',
            hint="the first writer makes it; hub kek show lists what there is",
        )
    body: dict[str, Any] = {"subject": subject, "version": versions[-1] + 1, "algorithm": algorithm}
    if not kek["shared"]:
        body["encryptedKeyMaterial"] = _new_wrapped(kek, algorithm)
    made = http.post(place, body)
    note(f'"{subject}" has version {made["version"]} of its data key.')


@app.command("delete")
def delete(
    name: NameArgument,
    permanent: Annotated[
        bool, typer.Option("--permanent", help="Remove a deleted KEK for good; its name is free again")
    ] = False,
) -> None:
    """Delete a KEK that has no data keys.

    Example: hub kek delete pii
    """
    http.delete(f"{_ROOT}/{quote(name)}{'?permanent=true' if permanent else ''}")
    note(f'Deleted the KEK "{name}"{" permanently" if permanent else ""}.')


def _row(kek: dict[str, Any]) -> dict[str, Any]:
    subjects = http.get(f"{_ROOT}/{quote(kek['name'])}/deks")
    return {
        "kek": kek["name"],
        "kms key": _kms_key(kek),
        "shared": "yes" if kek["shared"] else "no",
        "subjects": len(subjects),
        "created": datetime.fromtimestamp(kek["ts"] / 1000, UTC).isoformat(sep=" ", timespec="seconds"),
        "about": kek.get("doc") or "",
    }


def _kms_key(kek: dict[str, Any]) -> str:
    return f"{kek['kmsType']}://{kek['kmsKeyId']}"


def _new_wrapped(kek: dict[str, Any], algorithm: str) -> str:
    """Make a data key and return it wrapped, by this project's access to the KMS."""
    from hub.schema_registry.encryption.kms import KmsClient, encoded, new_key

    settings = load_settings()
    kms = KmsClient(settings.kms, settings.project)
    return encoded(kms.wrap(kek["kmsType"], kek["kmsKeyId"], new_key(algorithm)))
