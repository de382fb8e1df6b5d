"""[edge] ``hub query``: rows of a view, by key or by declared indexes."""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import quote

import typer

from hub.cli.http import get
from hub.cli.output import Output, OutputOption, note, show, show_one
from hub.errors import CallerError

_OPERATORS = {">=": ".gte", "<=": ".lte", ">": ".gt", "<": ".lt", "=": ""}
_CONDITION = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=|>|<|=)(.*)", re.DOTALL)


def query(
    view: str,
    key: Annotated[str | None, typer.Argument(help="One row. Without: rows in key order")] = None,
    where: Annotated[
        list[str] | None,
        typer.Option("--where", "-w", help="On a declared index: city=Oslo, points>=100; repeatable"),
    ] = None,
    order: Annotated[
        str | None, typer.Option(help="Declared indexes to sort by, - for downwards: city,-points")
    ] = None,
    fields: Annotated[str | None, typer.Option(help="Only these fields: name,city")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 20,
    start_after: Annotated[str | None, typer.Option(help="The cursor that the page before printed")] = None,
    after_write: Annotated[
        str | None, typer.Option(help="The position a write returned: the answer includes that write")
    ] = None,
    timeout_ms: Annotated[int | None, typer.Option(help="How long to wait for --after-write")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Read a view: one row by key, or rows by declared indexes.

    Examples: hub query customer_360 C-00001      hub query customer_360 -w city=Oslo --order=-value_cents
    Other questions: hub sql.
    """
    path = f"/views/{quote(view, safe='')}"
    headers = {"Hub-Position": after_write} if after_write else {}
    parameters = [("timeout_ms", str(timeout_ms))] if timeout_ms is not None else []
    if key is not None:
        if where or order or fields or start_after is not None:
            raise CallerError(
                "KEY and --where, --order, --fields or --start-after do not go together",
                hint="leave KEY out, or say --where key=VALUE",
            )
        show_one(get(f"{path}/{quote(key, safe='')}", parameters, headers), output)
        return
    parameters += [("limit", str(limit)), *map(_condition, where or ())]
    given = {"after": start_after, "order": order, "fields": fields}
    parameters += [(name, value) for name, value in given.items() if value is not None]
    page = get(path, parameters, headers)
    if output is Output.json:
        show_one(page, output)
        return
    rows = [{name: value for name, value in row.items() if not name.startswith("_")} for row in page["rows"]]
    show(rows, output)
    if page["next"] is not None:
        note(f"More: --start-after {page['next']}")


def _condition(text: str) -> tuple[str, str]:
    """The query parameter of a condition; the first sign counts, the value may have more of them."""
    found = _CONDITION.match(text)
    if found is None:
        raise CallerError(
            f'--where "{text}" is no condition', hint="write field=value, field>=value, field<value …"
        )
    name, sign, value = found.groups()
    return name + _OPERATORS[sign], value


app = query
