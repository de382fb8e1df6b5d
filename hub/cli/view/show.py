"""[edge] ``hub view show``, and summaries for lists of views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from textwrap import fill
from typing import Annotated, Any

import typer

from hub.cli.http import get
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.view.versions import show_comparison
from hub.errors import NotFound, did_you_mean
from hub.observability import format
from hub.record import Positions
from hub.times import epoch_ms


def show_view(
    view: Annotated[str, typer.Argument(help="The view's name")], output: OutputOption = Output.table
) -> None:
    """Show one view: its sources, fields, positions, last batch, and the position of each store.

    Example: hub view show customer_360
    """
    views: list[dict[str, Any]] = get("/views")["views"]
    found = next((each for each in views if each["view"] == view), None)
    if found is None:
        raise NotFound(
            f'view "{view}" does not exist',
            hint=did_you_mean(view, [each["view"] for each in views], "hub view ls lists them"),
        )
    if output is Output.json:
        show_one(found, output)
        return
    show_one(dict(shown(found, epoch_ms())))
    for each in found["stores"]:
        for key in (each.get("proof") or {}).get("differing", []):
            note(f'store {each["store"]}: key "{key["key"]}": {key["why"]}')
    for each in found.get("versions", []):
        if each["why"] != "first":
            note(f"version {each['number']}: {each['why']}")
        if each["state"] == "ready" and each["comparison"]:
            show_comparison(each["number"], each["comparison"])


def shown(view: Mapping[str, Any], now_ms: int) -> Iterator[tuple[str, object]]:
    """Yield (name, value) for people from a view of ``GET /views``; unknown or inapplicable values are left
    out.
    """
    lines: dict[str, object] = {
        "view": view["view"],
        "doc": view.get("doc"),
        "owner": view.get("owner"),
        "state": _state(view, now_ms),
        "why": view.get("reason"),
        "rows": view.get("rows"),
        "sources": _lines(f"{name}: {topic}" for name, topic in (view.get("sources") or {}).items()),
        "columns": as_text(view.get("fields") or ()),
        "indexes": as_text(view.get("indexes") or ()),
        "text index": _text_index(view.get("text_index")),
        "rows last for": view.get("ttl"),
        "cut": snapshot_group_summary(view.get("cut"), reason=True),
        "changelog": view.get("changelog"),
        "read up to": _lines(_by_topic(view.get("positions"))),
        "last batch": _batch(view.get("last_batch"), now_ms),
        "stores": _lines(_store(each, now_ms) for each in view.get("stores", ())),
        "version": versions_in_short(view.get("versions", [])),
        "recomputed": _recomputed(view.get("recomputed"), now_ms),
    }
    return ((name, value) for name, value in lines.items() if value not in (None, ""))


def _text_index(index: Mapping[str, Any] | None) -> str | None:
    return None if index is None else f"{as_text(index['fields'])} ({index['language']})"


def versions_in_short(versions: Sequence[Mapping[str, Any]]) -> str:
    """Return the served version and, in parentheses, the others.

    >>> versions_in_short([{"number": 2, "state": "served"}, {"number": 3, "state": "building"}])
    '2 (3 building)'
    """
    served = [str(each["number"]) for each in versions if each["state"] == "served"]
    beside = [f"{each['number']} {each['state']}" for each in versions if each["state"] != "served"]
    return " ".join([*served, *([f"({', '.join(beside)})"] if beside else [])])


def snapshot_group_summary(group: Mapping[str, Any] | None, *, reason: bool = False) -> str:
    """Return a summary such as ``shop``, or ``shop (apart)``, on request with the reason.

    >>> group = {"name": "v.transactions", "state": "together", "engine": "waiting"}
    >>> snapshot_group_summary({**group, "engine_why": "7 has no END"}, reason=True)
    'v.transactions (waiting: 7 has no END)'
    """
    if group is None:
        return ""
    state, why = group["state"], group.get("why")
    if group.get("engine") == "waiting":
        state, why = "waiting", group.get("engine_why")
    if state == "together":
        return str(group["name"])
    return f"{group['name']} ({state}{f': {why}' if reason and why else ''})"


def stores_in_short(stores: Iterable[Mapping[str, Any]]) -> str:
    """Return a summary such as ``serving, lake (filling, 1200 behind), warehouse (DIFFERS)``."""
    return ", ".join(
        each["store"] + (f" ({', '.join(parts)})" if (parts := _not_as_it_should(each)) else "")
        for each in stores
    )


def as_text(value: object, width: int = 100) -> object:
    """Lists and objects as people read them, in lines that a pipe, which has no width, keeps readable too.

    >>> as_text({"topic": "shop.orders", "reads": ["id", "status"]})
    'topic: shop.orders; reads: id, status'
    """
    match value:
        case Mapping():
            text = "; ".join(f"{name}: {as_text(each, 10**6)}" for name, each in value.items())
        case list() | tuple():
            text = ", ".join(str(as_text(each, 10**6)) for each in value)
        case _:
            return value
    return fill(text, width, break_long_words=False, break_on_hyphens=False)


def _not_as_it_should(store: Mapping[str, Any]) -> list[str]:
    behind = "?" if store["lag"] is None else store["lag"]
    parts = [] if store["state"] == "live" else [store["state"], f"{behind} behind"]
    proof = store.get("proof")
    return [*parts, "DIFFERS"] if proof is not None and proof["state"] == "DIFFERS" else parts


def _state(view: Mapping[str, Any], now_ms: int) -> str:
    """Return a summary such as ``live for 12 s``."""
    since_ms = view.get("since_ms")
    since = "" if since_ms is None else f" for {format.seconds(max(0, now_ms - since_ms) / 1000)}"
    return f"{view['state']}{since}"


def _by_topic(positions: str | None) -> Iterator[str]:
    """Yield one line per topic, such as ``shop.orders 0:2166 1:2131``: the next offset to read of each
    partition.
    """
    for topic, ends in groupby(Positions.parse(positions or ""), key=lambda end: end[0].topic):
        yield " ".join([topic, *(f"{tp.partition}:{offset}" for tp, offset in ends)])


def _batch(batch: Mapping[str, Any] | None, now_ms: int) -> str | None:
    """Return a summary such as ``live: 12 events in 0.53 s, 3 s ago; 1 to the dead-letter topic``."""
    if not batch:
        return None
    events, ms = batch["input_rows"], batch["batch_ms"]
    text = (
        f"{batch['mode']}: {events} {'event' if events == 1 else 'events'} in {format.seconds(ms / 1000)}, "
    )
    text += format.ago(batch["committed_at_ms"], now_ms)
    dead, late = batch["dead_records"], batch["late_records"]
    return (
        text + (f"; {dead} to the dead-letter topic" if dead else "") + (f"; {late} too late" if late else "")
    )


def _store(store: Mapping[str, Any], now_ms: int) -> str:
    """Return a summary such as ``serving, sqlite: live, MATCHES 12 s ago``."""
    from hub.cli.view.verify import verification_summary

    proof = store.get("proof")
    behind = store["lag"]
    parts = [
        store["state"],
        f"{behind} behind" if behind else "",
        store["reason"] or "",
        verification_summary(proof, now_ms) if proof else "",
    ]
    return f"{store['store']}, {store['kind']}: {', '.join(filter(None, parts))}"


def _recomputed(found: Mapping[str, Any] | None, now_ms: int) -> str | None:
    """Return a summary such as ``MATCHES 3 h ago``."""
    if found is None:
        return None
    return f"{found['state']} {format.ago(found['at_ms'], now_ms)}" + (
        f": {found['reason']}" if found["reason"] else ""
    )


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def in_rows(report: Mapping[str, object]) -> dict[str, object]:
    """Return a report's values as words, with a row for each line of a plan or of SQL."""
    rows = dict(row for name, value in report.items() for row in _numbered(name, value))
    return {name: as_text(value) for name, value in rows.items()}


def _numbered(name: str, value: object) -> list[tuple[str, object]]:
    if name not in ("plan", "sql") or not isinstance(value, list):
        return [(name, value)]
    return [(f"{name} {n}", line) for n, line in enumerate(value, 1)]
