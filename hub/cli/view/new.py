"""[edge] ``hub view new``: a first version of a view and its golden test, from the schemas of its topics."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import get
from hub.cli.terminal.output import note
from hub.errors import CallerError, NotFound, PeerError
from hub.files import write_new

if TYPE_CHECKING:
    from hub.materializers.definition.drafted import DraftSource
    from hub.topics.tree.tree import TopicSpec


def new_view(
    name: Annotated[str, typer.Argument(help="The view's name: lower-case letters, digits, _")],
    topics: Annotated[list[str], typer.Option("--from", help="A topic of the view; repeatable")],
    key: Annotated[
        str | None,
        typer.Option(
            "--key", "-k", help="The column of the row's key. Default: the first topic's key in topics.yaml"
        ),
    ] = None,
    shown: Annotated[bool, typer.Option("--dry-run", help="Print the files, write nothing")] = False,
) -> None:
    """Draft a view over topics that have schemas, and a golden test for it. Edit both, then run the test.

    Columns of a topic whose events have the same key become fields. Other topics are counted, and their
    numbers added up.

    Example: hub view new shop_360 --from crm.customers --from shop.orders
    """
    from hub.cli.view.schemas_source import topics_of
    from hub.materializers.definition.drafted import draft

    folder = load_settings().project
    tree = topics_of(folder)
    sources = [source_of(folder, tree, topic) for topic in topics]
    chosen = key or sources[0].key
    if chosen is None:
        raise CallerError(
            f'topics.yaml names no key for "{topics[0]}"',
            hint="name the column: --key COLUMN",
            code="HUB-1005",
        )
    made = draft(name, chosen, sources)
    files = {folder / "views" / f"{name}.yaml": made.view}
    if made.test is not None:
        files[folder / "views" / "tests" / f"{name}.yaml"] = made.test
    if shown:
        print("\n".join(f"# {path}\n{text}" for path, text in files.items()), end="")
        return
    write_new(files)
    for path in files:
        note(f"wrote {path}")
    note(f"Next: hub view validate, hub view test {name}; a hub that runs computes the view at once.")


def source_of(folder: Path, tree: Sequence[TopicSpec], topic: str) -> DraftSource:
    """Return a topic with its schema: of the project, else of the hub that runs. ``tree``: topics of
    topics.yaml.
    Raises NotFound (HUB-1419), CallerError when the hub refuses the caller.
    """
    from hub.cli.view.schemas_source import schema_of_topic
    from hub.materializers.definition.drafted import DraftSource

    schema, elsewhere = schema_of_topic(folder, tree, topic), "nor in a hub that runs"
    if schema is None:
        try:
            schema = registered(topic)
        except PeerError as error:
            elsewhere = f"and no hub could be asked: {error.message}"
    if schema is None:
        raise NotFound(
            f'topic "{topic}" has no schema, neither in "{folder}" {elsewhere}',
            hint="name a schema in topics.yaml; `hub schema infer` makes one of sample events",
            code="HUB-1419",
        )
    spec = next((each for each in tree if each.name == topic), None)
    return DraftSource(topic, schema, None if spec is None else spec.key)


def registered(topic: str) -> Any:
    """Return the Avro schema that the running hub's registry has for a topic; None when there is none.

    Raises PeerError when the hub does not answer, CallerError when it refuses the caller.
    """
    try:
        answer = get(f"/subjects/{topic}-value/versions/latest", timeout_s=10.0)
    except NotFound:
        return None
    return json.loads(answer["schema"]) if answer.get("schemaType", "AVRO") == "AVRO" else None
