"""[edge] Answers of queries as JSON, NDJSON, CSV and Arrow."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import Any

import orjson
from fastapi import Response
from fastapi.responses import StreamingResponse

from hub.csv_cells import in_cell
from hub.materializers.queries.answering.calls import Format
from hub.materializers.queries.http.arrow import ArrowStream
from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.running import QueryAnswer
from hub.materializers.queries.topic_rows import ScannedRange, missing_text
from hub.materializers.serving.read_your_writes import CATCHING_UP_HEADER, POSITION_HEADER

_MOST_HEADER = 4_000
_MEDIA = {
    "json": "application/json",
    "ndjson": "application/x-ndjson",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
}


def listed_columns(columns: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "type": kind} for name, kind in columns.items()]


def error_response(error: SqlError) -> Response:
    body = {
        "error_code": error.code,
        "message": error.message,
        "hint": error.hint,
        "line": error.line,
        "column": error.column,
        "caret": error.caret,
    }
    return Response(orjson.dumps(body), 400, media_type="application/json")


def answer_response(
    answer: QueryAnswer,
    scanned: list[ScannedRange],
    form: Format,
    elapsed_ms: int,
    stream: ArrowStream | None = None,
) -> Response:
    """Return the answer in its form. ``stream`` has the rows of Arrow's form."""
    names = [column.name for column in answer.columns]
    columns = [{"name": column.name, "type": column.kind} for column in answer.columns]
    ranges = [each.as_json() for each in scanned]
    headers = {"Hub-More": "true" if answer.more else "false"}
    if answer.positions:
        headers[POSITION_HEADER] = str(answer.positions)
    if answer.catching_up:
        headers[CATCHING_UP_HEADER] = ",".join(answer.catching_up)
    cut = None
    if answer.cut.together:
        cut = {"name": answer.cut.name, "at": str(answer.cut.at)}
        headers["Hub-Cut"] = str(answer.cut.name)
    if form == "json":
        body = {
            "columns": columns,
            "rows": [dict(zip(names, row, strict=True)) for row in answer.rows],
            "more": answer.more,
            "views": list(answer.views),
            "positions": str(answer.positions),
            "cut": cut,
            "catching_up": list(answer.catching_up),
            "scanned": ranges,
            "elapsed_ms": elapsed_ms,
        }
        return Response(orjson.dumps(body), 200, headers, _MEDIA[form])
    headers["Hub-Scanned"] = ",".join(
        f"{each.topic}:{each.partition}:{each.start}-{each.end}" for each in scanned
    )
    if missing := missing_text(scanned):
        headers["Hub-Missing"] = missing[:_MOST_HEADER]
    if stream is not None:
        headers["Content-Length"] = str(stream.size)
        return StreamingResponse(stream.chunks(), 200, headers, _MEDIA[form])
    if form == "ndjson":
        lines = b"".join(orjson.dumps(dict(zip(names, row, strict=True))) + b"\n" for row in answer.rows)
        return Response(lines, 200, headers, _MEDIA[form])
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow([in_cell(name) for name in names])
    writer.writerows([in_cell(_field(value)) for value in row] for row in answer.rows)
    return Response(text.getvalue().encode(), 200, headers, _MEDIA[form])


def _field(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return orjson.dumps(value).decode() if isinstance(value, dict | list) else value
