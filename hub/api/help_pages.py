"""[edge] ``/help``: the documentation that the package has, offline. It needs neither Kafka nor a store."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from hub.errors import NotFound
from hub.help.pages import INDEX, HelpPage, contents, image, page
from hub.observability.web.layout import breadcrumbs
from hub.observability.web.page import html


def add_help(app: FastAPI) -> None:
    """Add the pages below ``/help``."""

    @app.get("/help", include_in_schema=False)
    def index() -> HTMLResponse:
        return _shown(page(INDEX))

    @app.get("/help/images/{name}", include_in_schema=False)
    def picture(name: str) -> Response:
        return Response(image(name), media_type="image/png", headers={"Cache-Control": "max-age=3600"})

    @app.get("/help/{name:path}", include_in_schema=False)
    def one(name: str) -> Response:
        plain = name.removesuffix("/").removesuffix(".md")
        if plain != name:
            return RedirectResponse(f"/help/{plain}")
        try:
            return _shown(page(name))
        except NotFound as error:
            missing = HelpPage(name, "Not found", "")
            return _shown(missing, 404, f"{error.message[:1].upper()}{error.message[1:]}. {error.hint or ''}")


def _shown(help_page: HelpPage, status: int = 200, trouble: str = "") -> HTMLResponse:
    path = "/help" if help_page.name == INDEX else f"/help/{help_page.name}"
    crumbs = breadcrumbs("help", path)
    return html(
        "frame/help.html",
        status,
        section="help",
        crumbs=crumbs,
        found=help_page,
        contents=contents(),
        trouble=trouble,
    )
