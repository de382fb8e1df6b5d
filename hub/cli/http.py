"""[edge] httpx: requests of the command line to the running hub; its errors in the server's words."""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from hub.access_log.entry import ACCOUNT_HEADER
from hub.cli.context import load_settings
from hub.errors import CallerError, NotFound, PeerError


def account() -> str:
    """Return the account of the operating system and the machine, such as ``ana@laptop``."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}".encode("ascii", "replace").decode()


def base_url() -> str:
    """Return the URL of the hub's own server."""
    return load_settings().url


def asking() -> dict[str, str]:
    """Return the headers that authenticate requests to the hub: HUB_TOKEN, else the key of the hub's home if
    this account may read it. With the key, the access log gets the name of the account.
    """
    return {**load_settings().authorization, ACCOUNT_HEADER: account()}


def who_asks() -> str | None:
    """Return the same credentials as user:password, as hub.client expects them."""
    known = load_settings().credentials
    return None if known is None else ":".join(known)


def get(
    path: str,
    parameters: Mapping[str, str] | Sequence[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    timeout_s: float = 70.0,
) -> Any:
    """Return the JSON answer to a GET. Raises NotFound, CallerError or PeerError with the server's message
    and hint.
    """
    pairs: list[tuple[str, str | int | float | bool | None]] = list(
        parameters.items() if isinstance(parameters, Mapping) else parameters
    )
    return _request(
        "GET", path, timeout_s, params=httpx2.QueryParams(pairs), headers={**asking(), **(headers or {})}
    )


def post(path: str, body: Any, timeout_s: float = 70.0) -> Any:
    """Send JSON; the JSON answer. Raises as ``get`` does."""
    return _request("POST", path, timeout_s, json=body, headers=asking())


def delete(path: str, timeout_s: float = 70.0) -> Any:
    """Return the JSON answer to a DELETE. Raises as ``get`` does."""
    return _request("DELETE", path, timeout_s, headers=asking())


def _request(method: str, path: str, timeout_s: float, **parts: Any) -> Any:
    url = base_url()
    try:
        answer = httpx2.request(method, f"{url}{path}", timeout=timeout_s, **parts)
    except httpx2.HTTPError as error:
        raise unreachable(url, error) from None
    if answer.is_success:
        return answer_body(answer)
    raise refused(answer)


def answer_body(answer: httpx2.Response) -> Any:
    """Parse the JSON of an answer, None if it has no content. Raises PeerError if it is not JSON."""
    if answer.status_code == 204:
        return None
    try:
        return answer.json()
    except ValueError:
        host = answer.request.url.copy_with(userinfo=b"", path="/", query=None)
        raise PeerError(
            f'the server at "{host}" is not a hub', hint="is another program at its port?"
        ) from None


def unreachable(url: str, error: Exception) -> PeerError:
    return PeerError(
        f'hub server at "{url}" does not answer ({type(error).__name__})',
        hint="start it: hub up",
        code="HUB-3090",
    )


def refused(answer: httpx2.Response) -> Exception:
    """Convert the server's error to a HubError."""
    try:
        body = answer.json()
        message, hint = str(body["message"]), body.get("hint")
    except (ValueError, KeyError, TypeError):
        message, hint = f"HTTP {answer.status_code}", None
    if answer.status_code == 401 and not answer.request.headers.get("Authorization"):
        hint = "say who asks: HUB_TOKEN=<token>, or HUB_TOKEN=user:password"
    if answer.status_code == 404:
        return NotFound(message, hint=hint)
    return (PeerError if answer.status_code >= 500 else CallerError)(message, hint=hint)
