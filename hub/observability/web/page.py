"""[edge] Jinja2: templates, filters, and addresses of static files (with a hash, so that they can be
cached forever)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from fastapi.responses import HTMLResponse
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from hub import times
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


@dataclass(frozen=True, slots=True)
class Site:
    """The server, as every page names it. ``environment``: such as ``production``; "": it is not named.
    ``color``: of its badge, as the setting ``environment_color`` names it."""

    environment: str = ""
    color: str = "gray"


def show_site(site: Site) -> None:
    """Set how pages name the server of this process."""
    _environment().globals["site"] = site


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
        format.duration,
        format.bound,
        format.ago,
        format.clock,
        times.iso,
        format.moment,
        format.size,
        svg.line,
        svg.area,
    ):
        environment.filters[function.__name__] = function
    environment.globals["static"] = address
    environment.globals["address"] = layout.address
    environment.globals["range_links"] = layout.range_links
    environment.globals["may_produce"] = layout.may_produce
    environment.globals["may_administer"] = layout.may_administer
    environment.globals["may_register"] = layout.may_register
    environment.globals["words"] = format.state_label
    environment.globals["site"] = Site()
    return environment


def render(template: str, /, **values: Any) -> str:
    """Return the template's HTML; every value is escaped."""
    navigation = layout.visible_navigation()
    shared = {
        "caller": CALLER.get(),
        "navigation": navigation,
        "sections": [section for group in navigation for section in group.sections],
    }
    return _environment().get_template(template).render({**shared, **values})


def html(template: str, answer: int = 200, /, **values: Any) -> HTMLResponse:
    """Return the template as a response, with a policy that forbids external resources and inline scripts."""
    return HTMLResponse(
        render(template, **values).encode("utf-8", "backslashreplace"),
        answer,
        headers={
            "Content-Security-Policy": POLICY,
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            # With "no-referrer" a form of this site sends "Origin: null", as one of another site does.
            "Referrer-Policy": "same-origin",
            "Vary": "Accept",
        },
    )


# Default header of Java's own HTTP client, which registry clients use; they expect JSON.
_JAVA = "text/html, image/gif, image/jpeg, "


def takes_html(accept: str) -> bool:
    """Return whether an ``Accept`` header is a browser's."""
    return "text/html" in accept and not accept.startswith(_JAVA)


def is_of(origin: str, host: str) -> bool:
    """Return whether an ``Origin`` header (RFC 6454, 7.1: ``scheme://host[:port]``, or ``null``) is a page of
    ``host``.

    Compared as text: parsing a malformed address would raise, and such a request is to be refused.

    >>> is_of("https://hub:8088", "hub:8088"), is_of("http://[", "hub:8088"), is_of("null", "")
    (True, False, False)
    """
    return bool(host) and origin.partition("://")[2] == host


@cache
def static_files() -> dict[str, tuple[Path, str]]:
    """Return every file that the page may load: name → (path, media type). No other file is served."""
    files = {path.name: path for path in (_HERE / "static").iterdir() if path.suffix in _SUFFIXES}
    package = find_spec("django_htmx")
    if package is None or package.origin is None:
        raise NotFound('package "django-htmx" is not installed', hint="install the hub with its dependencies")
    folder = Path(package.origin).parent / "static" / "django_htmx"
    files |= {name: folder / place for name, place in _VENDORED.items()}
    return {name: (path, _SUFFIXES[path.suffix]) for name, path in files.items()}


@cache
def address(name: str) -> str:
    """Return the address of a static file: ``/ui/static/live.css?v=1a2b3c4d``. It changes when the file
    does."""
    path, _ = static_files()[name]
    return f"/ui/static/{name}?v={hashlib.sha256(path.read_bytes()).hexdigest()[:12]}"
