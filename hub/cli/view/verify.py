"""[edge] ``hub view verify``: compare stores with the changelog of a view, now or continuously in the
applier."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli import http
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show
from hub.cli.terminal.progress import counted
from hub.cli.terminal.watch_option import WatchOption, looked
from hub.errors import NotFound, did_you_mean
from hub.observability import format
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.config import Settings
    from hub.materializers.verification.fingerprint import ComparisonResult

EXIT_DIFFERS = 1


def verify_view(
    view: Annotated[
        str | None, typer.Argument(help="The view. Default: the last results of all views")
    ] = None,
    store: Annotated[
        str | None, typer.Option("--store", help="Only this store. Default: every store that the view is in")
    ] = None,
    last: Annotated[
        bool, typer.Option("--last", help="Show the last result of the continuous verification")
    ] = False,
    timeout_s: Annotated[
        float, typer.Option("--timeout", min=0.0, help="Seconds that a store may take to catch up")
    ] = 60.0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, help="Differing keys to list per store")] = 20,
    output: OutputOption = Output.table,
    watch: WatchOption = False,
) -> None:
    """Verify that stores equal the fold of the view's changelog: count and hash of the rows at one position.

    With VIEW: reads the whole changelog now. Without VIEW, or with --last or --watch: shows the last results
    of the continuous verification, which the server knows.

    Exit code 0: no difference was found; 1: a store differs, and its first differing keys are listed.

    Examples: hub view verify customer_360 --store lake      hub view verify --watch
    """
    if view is None or last or watch:
        equal = _show_last(view, store, output, watch)
    else:
        equal = _verify_now(load_settings(), view, store, timeout_s, limit, output)
    if not equal:
        raise typer.Exit(EXIT_DIFFERS)


def _show_last(view: str | None, store: str | None, output: Output, watch: bool) -> bool:
    """Print the last results of the continuous verification. Return whether none of them differs."""
    rows = looked(
        lambda: [
            each
            for each in http.get("/api/audit/views")["views"]
            if view in (None, each["view"]) and store in (None, each["store"])
        ],
        lambda rows: _print_verifications(rows, output),
        watch,
        output,
    )
    return not any(each["state"] == "DIFFERS" for each in rows)


def _print_verifications(rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    if output is Output.json:
        show(rows, output)
    elif rows:
        now_ms = epoch_ms()
        lines = [{**each, "proved": verification_summary(each, now_ms)} for each in rows]
        show(lines, output, ("view", "store", "rows", "proved"))
        for each in rows:
            for key in each["differing"]:
                note(f'{each["view"]} in {each["store"]}: key "{key["key"]}": {key["why"]}')
    else:
        note("no view is verified: none runs, the applier has not reported yet, or `proof_core_share` is 0")


def _verify_now(
    settings: Settings, view: str, store: str | None, timeout_s: float, limit: int, output: Output
) -> bool:
    """Compare the stores with the changelog, print the results, and return whether all are equal."""
    from hub.runtime import collect_rarely

    collect_rarely()
    verdicts = {
        name: _verdict(settings, name, view, timeout_s, limit) for name in _stores(settings, view, store)
    }
    rows = [_line(name, verdict) for name, verdict in verdicts.items()]
    if output is Output.json:
        for row, verdict in zip(rows, verdicts.values(), strict=True):
            row["differing"] = [{"key": each.key, "why": each.why} for each in verdict.keys]
    show(rows, output)
    if output is Output.table:
        for name, verdict in verdicts.items():
            for each in verdict.keys:
                note(f'store {name}: key "{each.key}": {each.why}')
    return all(verdict.equal for verdict in verdicts.values())


def _stores(settings: Settings, view: str, store: str | None) -> list[str]:
    from hub.config import SERVING
    from hub.materializers.definition.load import load_view

    if store is None:
        file = settings.project / "views" / f"{view}.yaml"
        wanted = list(load_view(file).stores) if file.exists() else []
        return wanted or [SERVING]
    if store not in settings.store_urls:
        raise NotFound(
            f'store "{store}" is not in hub.yaml',
            hint=did_you_mean(store, settings.store_urls, f"there are: {', '.join(settings.store_urls)}"),
        )
    return [store]


def _verdict(settings: Settings, name: str, view: str, timeout_s: float, most: int) -> ComparisonResult:
    from hub.kafka import own_cluster
    from hub.materializers.definition.declared import changelog_of, table_of
    from hub.materializers.stores.open_store import open_store
    from hub.materializers.stores.sql_store import Store
    from hub.materializers.verification.verify import verify
    from hub.materializers.versions.version_records import versions_of
    from hub.materializers.versions.versions import PREFIX
    from hub.schema_registry.client.registry_client import RegistryClient

    if name not in settings.store_urls:
        raise NotFound(f'view "{view}": store "{name}" is not in hub.yaml', hint="add it under `stores:`")
    log = own_cluster(settings)
    schemas = RegistryClient(settings.registry)
    with (
        counted(f"{view} in {name}") as progress,
        closing(open_store(settings.store_urls[name], settings, read_only=True)) as opened,
    ):
        table, changelog = view, changelog_of(view)
        if isinstance(opened, Store):
            table = opened.served(view)
            changelog = changelog_of(table)
        elif f"{PREFIX}{view}" in (known := opened.progress()):
            served = versions_of(known[f"{PREFIX}{view}"]).served
            changelog = changelog_of(table_of(view, served.suffix))
        return verify(
            log,
            schemas,
            table,
            opened,
            changelog=changelog,
            timeout_s=timeout_s,
            most=most,
            progress=progress,
        )


def _line(name: str, verdict: ComparisonResult) -> dict[str, Any]:
    return {
        "store": name,
        "equal": verdict.equal,
        "changelog_rows": verdict.changelog.rows,
        "store_rows": verdict.store.rows,
        "changelog_hash": verdict.changelog.value,
        "store_hash": verdict.store.value,
        "positions": str(verdict.positions),
    }


def verification_summary(proof: Mapping[str, Any], now_ms: int) -> str:
    """Return a summary such as ``MATCHES 12 s ago``, or ``OPEN:
    the store catches up (matched 3 min ago)``."""
    matched_ms, state = proof["matched_ms"], f"{proof['state']}"
    ago = "" if matched_ms is None else format.ago(matched_ms, now_ms)
    if proof["state"] == "MATCHES":
        return f"{state} {ago}"
    return f"{state}: {proof['reason']}" + (f" (matched {ago})" if ago else "")
