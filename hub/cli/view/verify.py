"""[edge] ``hub view verify``: compare stores with the changelog of a view, directly in Kafka and the stores."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.progress import counted
from hub.errors import NotFound, nearest

if TYPE_CHECKING:
    from hub.config import Settings
    from hub.materializers.verification.verify import VerificationResult
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hub.observability import format

if TYPE_CHECKING:
    from hub.config import Settings

DIFFERS = 1


def verify_view(
    view: Annotated[str, typer.Argument(help="The view")],
    store: Annotated[
        str | None, typer.Option("--store", help="Only this store. Default: every store that the view is in")
    ] = None,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds that a store may take to catch up")
    ] = 60.0,
    most: Annotated[int, typer.Option("--most", min=0, help="How many differing keys are listed")] = 20,
    output: OutputOption = Output.table,
) -> None:
    """Prove that a store equals the fold of the view's changelog: count and hash of its rows at one position.

    Reads the whole changelog. Exit code 0: equal; 1: they differ, and the first differing keys are listed.

    Example: hub view verify customer_360 --store lake
    """
    from hub.runtime import collect_rarely

    settings = load_settings()
    collect_rarely()
    verdicts = {
        name: _verdict(settings, name, view, timeout_s, most) for name in _stores(settings, view, store)
    }
    rows = [_line(name, verdict) for name, verdict in verdicts.items()]
    if output is Output.json:
        for row, verdict in zip(rows, verdicts.values(), strict=True):
            row["differing"] = [{"key": each.key, "why": each.why} for each in verdict.differing]
    show(rows, output)
    if output is Output.table:
        for name, verdict in verdicts.items():
            for each in verdict.differing:
                note(f'store {name}: key "{each.key}": {each.why}')
    if not all(verdict.equal for verdict in verdicts.values()):
        raise typer.Exit(DIFFERS)


def _stores(settings: Settings, view: str, store: str | None) -> list[str]:
    from hub.config import SERVING
    from hub.materializers.definition.load import load_view

    if store is None:
        file = settings.project / "views" / f"{view}.yaml"
        wanted = list(load_view(file).stores) if file.exists() else []
        return wanted or [SERVING]
    if store not in settings.store_urls:
        guess = nearest(store, settings.store_urls)
        raise NotFound(
            f'store "{store}" is not in hub.yaml',
            hint=f'did you mean "{guess}"?' if guess else f"there are: {', '.join(settings.store_urls)}",
        )
    return [store]


def _verdict(settings: Settings, name: str, view: str, timeout_s: float, most: int) -> VerificationResult:
    from hub.kafka import own_cluster
    from hub.materializers.definition.declared import changelog_of, table_of
    from hub.materializers.stores.open_store import open_store
    from hub.materializers.stores.sql_store import Store
    from hub.materializers.verification.verify import verify
    from hub.materializers.versions.versions import PREFIX, versions_of
    from hub.schema_registry.client.registry_client import RegistryClient

    if name not in settings.store_urls:
        raise NotFound(f'view "{view}": store "{name}" is not in hub.yaml', hint="add it under `stores:`")
    log = own_cluster(settings)
    schemas = RegistryClient(settings.registry)
    with (
        counted(f"{view} in {name}") as told,
        closing(open_store(settings.store_urls[name], read_only=True)) as opened,
    ):
        table, changelog = view, changelog_of(view)
        if isinstance(opened, Store):
            table = opened.served(view)
            changelog = changelog_of(table)
        elif f"{PREFIX}{view}" in (known := opened.progress()):
            served = versions_of(known[f"{PREFIX}{view}"]).served
            changelog = changelog_of(table_of(view, served.suffix))
        return verify(
            log, schemas, table, opened, changelog=changelog, timeout_s=timeout_s, most=most, told=told
        )


def _line(name: str, verdict: VerificationResult) -> dict[str, Any]:
    return {
        "store": name,
        "equal": verdict.equal,
        "changelog_rows": verdict.changelog_rows,
        "store_rows": verdict.store_rows,
        "changelog_hash": verdict.changelog_hash,
        "store_hash": verdict.store_hash,
        "positions": str(verdict.positions),
    }


def verification_summary(proof: Mapping[str, Any], now_ms: int) -> str:
    """Return a summary such as ``MATCHES 12 s ago``, or ``OPEN: the store catches up (matched 3 min ago)``."""
    matched_ms, said = proof["matched_ms"], f"{proof['state']}"
    ago = "" if matched_ms is None else format.ago(matched_ms, now_ms)
    if proof["state"] == "MATCHES":
        return f"{said} {ago}"
    return f"{said}: {proof['reason']}" + (f" (matched {ago})" if ago else "")
