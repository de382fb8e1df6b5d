"""Cost of the guard in front of every route, in microseconds per request: ``python -m bench.access``. Needs
no server and no Kafka.
"""

from __future__ import annotations

import asyncio
import base64
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hub.access.live_config import LiveAccess
from hub.access.secrets import hash_of_password, hash_of_token
from hub.api.guard import AuthenticationContext, Guard

ROUNDS, EACH = 5, 5_000
TOKEN = "hubt_bench"
FILE = f"""\
groups:
  shop: [{{role: read, topics: ["shop.**"], views: ["**"]}}]
users:
  ana: {{password: "{hash_of_password("correct horse", b"0" * 16)}", groups: [shop]}}
tokens:
  checkout: {{token: "{hash_of_token(TOKEN)}", groups: [shop]}}
"""
QUOTAS = """\
quotas:
  defaults: {queries_per_s: 1000000, connections: 1000}
  tenants: {shop: {views: [customer_360], queries_per_s: 1000000}}
"""


async def answered(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b""})


async def nothing(_message: Any = None) -> dict[str, str]:
    return {"type": "http.disconnect"}


def scope(path: str, authorization: bytes) -> dict[str, Any]:
    headers = [(b"host", b"hub"), (b"accept", b"*/*"), (b"user-agent", b"bench")]
    headers += [(b"authorization", authorization)] if authorization else []
    return {
        "type": "http",
        "method": "GET",
        "path": path,
        "query_string": b"",
        "headers": headers,
        "client": ("127.0.0.1", 1),
    }


async def measured(guard: Guard, path: str, authorization: bytes) -> float:
    """The best of some rounds, microseconds a request."""
    said: list[Mapping[str, Any]] = []

    async def send(message: Mapping[str, Any]) -> None:
        said.append(message)

    await guard(scope(path, authorization), nothing, send)
    assert said[0]["status"] == 200, said
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for _ in range(EACH):
            await guard(scope(path, authorization), nothing, nothing)
        best = min(best, (time.perf_counter() - began) / EACH * 1e6)
    return best


async def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        project = Path(folder)
        off = await measured(
            Guard(answered, AuthenticationContext(LiveAccess(project), project)), "/schemas/ids/5", b""
        )
        (project / "access.yaml").write_text(FILE)
        guard = Guard(answered, AuthenticationContext(LiveAccess(project), project))
        password = b"Basic " + base64.b64encode(b"ana:correct horse")
        print(f"without access.yaml       {off:6.1f} µs")
        for what, path, how in (
            ("a token, a schema's id", "/schemas/ids/5", b"Bearer " + TOKEN.encode()),
            ("a token, a row by key", "/views/customer_360/C-1", b"Bearer " + TOKEN.encode()),
            ("a password, a row by key", "/views/customer_360/C-1", password),
        ):
            print(f"{what:<25} {await measured(guard, path, how):6.1f} µs")
        (project / "access.yaml").write_text(FILE + QUOTAS)
        guard = Guard(answered, AuthenticationContext(LiveAccess(project), project))
        path, how = "/views/customer_360/C-1", b"Bearer " + TOKEN.encode()
        print(f"{'the same, with quotas':<25} {await measured(guard, path, how):6.1f} µs")


if __name__ == "__main__":
    asyncio.run(main())
