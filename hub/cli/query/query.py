"""[edge] ``hub query``: rows of a view, by key or by declared indexes."""

from __future__ import annotations

from typing import Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.http import base_url, who_asks
from hub.cli.terminal.conditions import condition
from hub.cli.terminal.output import Output, OutputOption, show_one
from hub.cli.terminal.row_pages import (
    AfterWriteOption,
    LimitOption,
    StartAfterOption,
    WaitOption,
    WhereOption,
    show_page,
)
from hub.client import Hub
from hub.errors import CallerError


def query(
    view: str,
    key: Annotated[str | None, typer.Argument(help="One row. Without: rows in key order")] = None,
    where: WhereOption = None,
    order: Annotated[
        str | None, typer.Option(help="Declared indexes to sort by, - for downwards: city,-points")
    ] = None,
    fields: Annotated[str | None, typer.Option(help="Only these fields: name,city")] = None,
    limit: LimitOption = 20,
    start_after: StartAfterOption = None,
    after_write: AfterWriteOption = None,
    timeout_ms: WaitOption = None,
    output: OutputOption = Output.table,
) -> None:
    """Read a view: one row by key, or rows by declared indexes.

    Examples: hub query customer_360 C-00001      hub query customer_360 --where city=Oslo --order=-value_cents
    For all other queries, use `hub sql`.
    """  # noqa: E501
    timeout_s = (load_settings().query_timeout_ms if timeout_ms is None else timeout_ms) / 1000
    with Hub(base_url(), token=who_asks(), retry=False) as hub:
        if key is not None:
            if where or order or fields or start_after is not None:
                raise CallerError(
                    "KEY and --where, --order, --fields or --start-after do not go together",
                    hint="leave KEY out, or say --where key=VALUE",
                )
            show_one(hub.get(view, key, after=after_write, timeout_s=timeout_s), output)
            return
        page = hub.page(
            view,
            where=[condition(each) for each in where or ()],
            order=order,
            fields=None if fields is None else fields.split(","),
            limit=limit,
            cursor=start_after,
            after=after_write,
            timeout_s=timeout_s,
        )
    plain = [{name: value for name, value in row.items() if not name.startswith("_")} for row in page.rows]
    show_page(page, plain, output)


app = query
