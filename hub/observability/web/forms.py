"""[edge] Forms that the hub's own pages send."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import parse_qsl

from fastapi import Request

from hub.errors import CallerError
from hub.observability.web.page import is_of

MOST_POSTED = 20_000
# Values of a form by name.
PostedForm = Mapping[str, str]


async def posted(request: Request, most: int = MOST_POSTED, most_fields: int = 20) -> PostedForm:
    """Return the values of a form sent from this server's own page; another site cannot submit one on the
    user's behalf. ``most``: bytes as sent.

    Raises CallerError.
    """
    site, origin, host = (request.headers.get(name, "") for name in ("sec-fetch-site", "origin", "host"))
    if not (site == "same-origin" if site else is_of(origin, host)):
        raise CallerError(
            "this form was not sent from the hub's own page", hint="open the page and send it there"
        )
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > most:
            raise CallerError(f"the form has more than {most} bytes")
    try:
        return dict(parse_qsl(body.decode("utf-8", "replace"), max_num_fields=most_fields))
    except ValueError:
        raise CallerError(f"the form has more than {most_fields} fields") from None
