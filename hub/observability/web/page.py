"""[edge] Jinja2: templates, filters, and the addresses of static files (with a hash, so they may be cached for ever)."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hub.caller import CALLER
from hub.errors import NotFound
from hub.observability import format
from hub.observability.web import layout, svg

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HERE = Path(__file__).parent
_SUFFIXES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
# From the installed package django-htmx; Django itself is not needed.
_VENDORED = {"htmx.js": "htmx-2.min.js", "sse.js": "ext/hx-sse-2.min.js"}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    for function in (
        format.count,
        format.short,
        format.rate,
        format.seconds,
        format.bound,
        format.ago,
        format.clock,
        format.iso,
        format.moment,
        format.size,
        svg.line,
        svg.area,
    ):
        environment.filters[function.__name__] = function
    environment.globals["static"] = address
    environment.globals["address"] = layout.address
    environment.globals["words"] = format.state_label
    return environment


def render(template: str, /, **values: Any) -> str:
    """The template's HTML; every value is escaped."""
    return (
        _environment()
        .get_template(template)
        .render({"caller": CALLER.get(), "sections": layout.visible_sections(), **values})
    )


def html(template: str, answer: int = 200, /, **values: Any) -> HTMLResponse:
    """The template as an answer, with the policy that it loads nothing from elsewhere and runs nothing inline."""
    return HTMLResponse(
        render(template, **values).encode("utf-8", "backslashreplace"),
        answer,
        headers={
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            # With "no-referrer" a form of this very site says "Origin: null", as one of another site does.
            "Referrer-Policy": "same-origin",
            "Vary": "Accept",
        },
    )


# What Java's own HTTP client says when nobody tells it what to say. Who uses it, as registry clients do, reads JSON.
_JAVA = "text/html, image/gif, image/jpeg, "


def takes_html(accept: str) -> bool:
    """Whether an ``Accept`` header is of somebody who looks at pages."""
    return "text/html" in accept and not accept.startswith(_JAVA)


def is_of(origin: str, host: str) -> bool:
    """Whether an ``Origin`` header is that of a page of this ``host`` (RFC 6454, 7.1: ``scheme://host[:port]``, or ``null``).

    Compared as text: what takes addresses apart raises where there is none, and who sends that is to be refused.

    >>> is_of("https://hub:8088", "hub:8088"), is_of("http://[", "hub:8088"), is_of("null", "")
    (True, False, False)
    """
    return bool(host) and origin.partition("://")[2] == host


@cache
def static_files() -> dict[str, tuple[Path, str]]:
    """Every file the page may load: name → (path, media type). Nothing else is served."""
    files = {path.name: path for path in (_HERE / "static").iterdir() if path.suffix in _SUFFIXES}
    package = find_spec("django_htmx")
    if package is None or package.origin is None:
        raise NotFound('package "django-htmx" is not installed', hint="install the hub with its dependencies")
    folder = Path(package.origin).parent / "static" / "django_htmx"
    files |= {name: folder / place for name, place in _VENDORED.items()}
    return {name: (path, _SUFFIXES[path.suffix]) for name, path in files.items()}


@cache
def address(name: str) -> str:
    """``/ui/static/live.css?v=1a2b3c4d``: the address changes when the file does."""
    path, _ = static_files()[name]
    return f"/ui/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
