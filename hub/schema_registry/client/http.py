"""[edge] httpx: one request to a registry with Confluent's API, with error responses as the hub's errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import httpx2 as httpx
import orjson

from hub.errors import CallerError, Conflict, HubError, NotFound, PeerError

_MEDIA_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryHttp:
    """Connections to one registry. Thread safe. Each request ends within ``timeout_s``."""

    def __init__(self, url: str, timeout_s: float, transport: httpx.BaseTransport | None = None) -> None:
        whole = httpx.URL(url)
        # For errors and logs: the URL without credentials.
        self.url = str(whole.copy_with(userinfo=b"")).rstrip("/")
        who = (whole.username, whole.password) if whole.userinfo else None
        self._http = httpx.Client(
            base_url=self.url,
            timeout=timeout_s,
            headers={"Accept": _MEDIA_TYPE},
            transport=transport,
            auth=who,
        )

    def request(self, method: str, path: str, body: Any = None, **query: str) -> Any:
        """Return the answer's JSON.

        Raises NotFound (404), Conflict (409), CallerError (refused), PeerError (no answer).
        """
        content = None if body is None else orjson.dumps(body)
        headers = {} if body is None else {"Content-Type": _MEDIA_TYPE}
        try:
            answer = self._http.request(method, path, content=content, headers=headers, params=query)
        except httpx.HTTPError as error:
            raise PeerError(
                f'schema registry at "{self.url}" does not answer ({type(error).__name__})',
                hint="check the server with hub doctor",
                code="HUB-3032",
            ) from None
        if answer.is_success:
            return orjson.loads(answer.content)
        raise _refusal(answer)

    def close(self) -> None:
        self._http.close()


def quoted(subject: str) -> str:
    """Quote a subject as one segment of a path."""
    return quote(subject, safe="")


def refusals_in(answer: Mapping[str, Any]) -> list[str]:
    """Return the reasons of a verbose compatibility answer; [] when the schema is compatible.

    Messages that are warnings are left out.
    """
    if answer["is_compatible"]:
        return []
    return [each for each in answer.get("messages") or () if not each.startswith("warning: ")] or [
        "incompatible"
    ]


def _refusal(answer: httpx.Response) -> HubError:
    try:
        message = str(orjson.loads(answer.content)["message"])
    except (ValueError, KeyError, TypeError):
        message = f"HTTP {answer.status_code}"
    description = f"schema registry: {message}"
    if answer.status_code == 404:
        return NotFound(description)
    if answer.status_code == 409:
        return Conflict(description, hint="make the change compatible, or change the level")
    return CallerError(description) if answer.status_code < 500 else PeerError(description, code="HUB-3033")
