"""[edge] ``hub view``: the views that run, and the files that declare them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import get
from hub.cli.output import Output, OutputOption, note, show, show_one
from hub.cli.view_verify import verify_view
from hub.errors import NotFound, nearest

app = typer.Typer(
    help="Views: list, show, check their files, prove their stores.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="Examples: hub view ls; hub view show customer_360; hub view validate",
)

app.command("verify")(verify_view)


@app.command("ls")
def list_views(output: OutputOption = Output.table) -> None:
    """Every view: what its engine does, how many rows are served, the stores it is in, why it does not run."""
    views = get("/views")["views"]
    if output is Output.table:
        views = [{**each, "stores": _in_short(each.get("stores", []))} for each in views]
    show(views, output, ("view", "state", "rows", "stores", "owner", "reason"))


def _in_short(stores: list[dict[str, Any]]) -> str:
    """``serving, lake (filling, 1200 behind)``"""
    return ", ".join(
        each["store"]
        if each["state"] == "live"
        else f"{each['store']} ({each['state']}, {'?' if each['lag'] is None else each['lag']} behind)"
        for each in stores
    )


@app.command("show")
def show_view(view: str, output: OutputOption = Output.table) -> None:
    """One view: its sources, fields, positions, last batch, and how far each of its stores is."""
    views: list[dict[str, Any]] = get("/views")["views"]
    found = next((each for each in views if each["view"] == view), None)
    if found is None:
        guess = nearest(view, [each["view"] for each in views])
        raise NotFound(
            f'view "{view}" does not exist',
            hint=f'did you mean "{guess}"?' if guess else "hub view ls lists them",
        )
    show_one(found, output)


@app.command()
def validate(
    project: Annotated[
        Path | None, typer.Argument(help="The project folder. Default: the current project")
    ] = None,
) -> None:
    """Check the files of a project's views, and their fields against the schemas that topics.yaml names. Needs no Kafka."""
    from hub.materializers.shape import shape
    from hub.materializers.view import load_view, view_files
    from hub.topics.tree import load, matches

    folder = project or load_settings().project
    tree_file = folder / "topics.yaml"
    topics = load(tree_file).topics if tree_file.exists() else ()
    files = view_files(folder)
    if not files:
        raise NotFound(f'folder "{folder / "views"}" has no views', hint="a view is a file views/NAME.yaml")
    for file in files:
        view = load_view(file)
        schemas = {
            name: next(
                (t.schema for t in topics if t.schema is not None and matches(source.topic, t.name)), None
            )
            for name, source in view.sources.items()
        }
        unknown = [name for name, schema in schemas.items() if schema is None]
        if unknown:
            note(
                f"{file}: well formed; fields not checked: no schema in topics.yaml for {', '.join(unknown)}"
            )
            continue
        shape(view, {name: json.loads(Path(str(schema)).read_text()) for name, schema in schemas.items()})
        note(f"{file}: fine")
