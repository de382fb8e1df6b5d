"""[core] A view as lists and pages describe it: state, rows, stores, verification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hub.caller import sees_view, shows_keys
from hub.errors import PeerError
from hub.materializers.applying.ttl import expired_records
from hub.materializers.definition.declared import EXPIRY_PREFIX, changelog_of
from hub.materializers.progress.store_reports import stores_of
from hub.materializers.progress.view_states import Newest
from hub.materializers.serving.row_counts import RowCounts
from hub.materializers.snapshot_groups.group import GROUP
from hub.materializers.snapshot_groups.in_store import CommonSnapshot
from hub.materializers.stores.sql.tables import ViewTable
from hub.materializers.stores.sql_store import Store
from hub.materializers.verification.verification_status import reported_verifications, shown
from hub.materializers.versions.routes import recomputed, shown_versions
from hub.times import epoch_ms


def known_views(store: Store, records: Mapping[str, Any]) -> list[str]:
    """Return the names of views that have a table or a state in the progress records ``records``."""
    with_state = [key.removeprefix("state:") for key in records if key.startswith("state:")]
    return sorted({*store.names(), *with_state})


def describe(counts: RowCounts, view: str, records: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view for lists: state, rows, positions, last batch. ``records``: progress records by key."""
    state: Mapping[str, Any] = records.get(f"state:{view}", {})
    progress: Mapping[str, Any] = records.get(f"progress:{view}", {})
    return {
        "view": view,
        "doc": state.get("doc", ""),
        "owner": state.get("owner", ""),
        "state": state.get("state", "unknown"),
        "reason": state.get("reason"),
        "since_ms": state.get("since_ms"),
        "sources": state.get("sources", {}),
        "rows": counts.of(view) if view in counts.store.names() else 0,
        **stored(counts.store, view, records),
        "last_batch": progress or None,
        "versions": shown_versions(records, view),
        "recomputed": recomputed(records, view),
        **_lasting(view, state, progress),
    }


def _lasting(view: str, state: Mapping[str, Any], progress: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ttl of a view that has one, and how many expiries it has folded."""
    if state.get("ttl") is None:
        return {}
    return {
        "ttl": state["ttl"],
        "expired": expired_records(progress.get("sources", {}), EXPIRY_PREFIX + view),
    }


def stored(store: Store, view: str, records: Mapping[str, Any]) -> dict[str, Any]:
    """Return a view's state in its stores without its row count, which reads the whole table.

    ``records``: the store's progress records by key.
    """
    table = store.view(view) if view in store.names() else None
    served = store.served(view)
    with store.reading() as connection:
        found = store.catalog.group(connection, view)
    return {
        **({} if found is None else {"cut": _group(*found, view, records)}),
        "fields": list(table.types) if table else [],
        "indexes": list(table.indexes) if table else [],
        "text_index": _text_index(table),
        "positions": str(store.positions(view, "source")) if table else "",
        "stores": stores_of(records, served, _verifications(records, view)),
        "changelog": changelog_of(served),
    }


def _text_index(table: ViewTable | None) -> dict[str, Any] | None:
    """Return the fields that ``q`` searches and their language; None without a text index."""
    if table is None or table.text is None:
        return None
    return {"fields": list(table.text.index.fields), "language": table.text.index.language}


def _verifications(records: Mapping[str, Any], view: str) -> dict[str, dict[str, Any]]:
    """Return the verification status of a view, by store."""
    reads = shows_keys(view)
    return {
        store: shown(proof, keys=reads)
        for store, proof in reported_verifications(records, epoch_ms(), only=view)
    }


def _group(
    views: Sequence[str], common: CommonSnapshot, view: str, records: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the snapshot group of a view for lists. ``at``: this view's part of the snapshot.

    A reason may name another view, so it is hidden from a caller who may not see every view of the group.
    """
    note: Mapping[str, Any] = records.get(f"{GROUP}{common.name}") or {}
    sees_all = all(sees_view(each.partition("@")[0]) for each in (*views, *common.views))
    reasons = [each for each in (common.why, common.detail) if each]
    return {
        "name": common.name,
        "state": "together" if common.together else "apart",
        "why": None if common.together else "; ".join(reasons if sees_all else reasons[:1]),
        "since_ms": common.since_ms,
        "engine": note.get("state"),
        "engine_why": note.get("why") if sees_all else None,
        "at": str(common.at.of_topics((records.get(f"progress:{view}") or {}).get("sources", ()))),
        "views": sorted(filter(sees_view, views)),
    }


def no_rows_yet(store: Store, view: str, newest: Newest) -> list[str]:
    """Raise PeerError for a known view without a table (starting, or its store is being refilled).

    Returns all known views otherwise.
    """
    records = newest(store.progress())
    known = known_views(store, records)
    if view in known:
        state: Mapping[str, Any] = records.get(f"state:{view}", {})
        raise PeerError(
            f'view "{view}" has no rows yet: it is {state.get("state", "starting")}',
            hint=state.get("reason") or "its first batch makes them",
            code="HUB-3053",
        )
    return known
