"""A double of the ``_bulk`` API of Elasticsearch and OpenSearch, in a thread: documents with external
versions.

It knows what the sink ``search`` uses: index and delete, 201, 200, 404, 409, and refusals that a test orders.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class SearchCluster:
    """``documents``: id to (version, body; None: deleted). ``answers``: statuses of the next whole requests.
    ``refusals``: statuses of the next items of an id. ``wrong``: ids whose documents do not fit the mapping.
    """

    def __init__(self) -> None:
        self.documents: dict[str, tuple[int, Any]] = {}
        self.answers: list[int] = []
        self.refusals: dict[str, list[int]] = {}
        self.wrong: set[str] = set()
        self.most_bytes = 1 << 30
        self.requests: list[int] = []
        self.authorization: set[str | None] = set()
        self.changes = 0
        self.url = ""

    def live(self) -> dict[str, Any]:
        return {id: body for id, (_, body) in self.documents.items() if body is not None}

    def bulk(self, data: bytes) -> tuple[int, Any]:
        if self.answers and (status := self.answers.pop(0)) != 200:
            return status, {"error": "ordered by the test"}
        if len(data) > self.most_bytes:
            return 413, {"error": "too large"}
        lines = iter(data.decode().splitlines())
        items = []
        for line in lines:
            ((action, about),) = json.loads(line).items()
            body = json.loads(next(lines)) if action == "index" else None
            items.append({action: self._item(action, about, body)})
        self.requests.append(len(items))
        return 200, {"items": items}

    def _item(self, action: str, about: dict[str, Any], body: Any) -> dict[str, Any]:
        id, version = about["_id"], about["version"]
        assert about["version_type"] == "external" and about["_index"] == "articles"
        if self.refusals.get(id):
            return _error(self.refusals[id].pop(0), "es_rejected_execution_exception")
        if id in self.wrong:
            return _error(400, "mapper_parsing_exception")
        before = self.documents.get(id)
        if before is not None and before[0] >= version:
            return _error(409, "version_conflict_engine_exception")
        self.documents[id] = (version, body)
        self.changes += 1
        if action == "delete":
            return {"status": 404 if before is None else 200}
        return {"status": 201 if before is None else 200}


def _error(status: int, kind: str) -> dict[str, Any]:
    return {"status": status, "error": {"type": kind, "reason": "ordered by the test"}}


@contextmanager
def search_cluster() -> Iterator[SearchCluster]:
    cluster = SearchCluster()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path.partition("?")[0] == "/_bulk"
            assert self.headers["content-type"] == "application/x-ndjson"
            cluster.authorization.add(self.headers.get("authorization"))
            status, body = cluster.bulk(self.rfile.read(int(self.headers["content-length"])))
            text = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            if status == 429:
                self.send_header("retry-after", "0")
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    cluster.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
