"""[edge] ``hub view new``: a first version of a view and its golden test, from the schemas of its topics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.http import get
from hub.cli.terminal.output import note
from hub.errors import CallerError, ConfigError, HubError, NotFound

if TYPE_CHECKING:
    from hub.materializers.definition.drafted import DraftSource


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
    from hub.materializers.definition.drafted import draft

    folder = load_settings().project
    sources = [source_of(folder, topic) for topic in topics]
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


def source_of(folder: Path, topic: str) -> DraftSource:
    """Return a topic with its schema: of the project, else of the hub that runs.
    Raises NotFound (HUB-1419)."""
    from hub.cli.view.schemas_source import schema_of_topic
    from hub.materializers.definition.drafted import DraftSource
    from hub.topics.tree.tree import load
    from hub.yaml import is_there

    tree_file = folder / "topics.yaml"
    spec = load(tree_file).find(topic) if is_there(tree_file) else None
    schema = schema_of_topic(folder, topic)
    schema = registered(topic) if schema is None else schema
    if schema is None:
        raise NotFound(
            f'topic "{topic}" has no schema, neither in "{folder}" nor in a hub that runs',
            hint="name a schema in topics.yaml; `hub schema infer` makes one of sample events",
            code="HUB-1419",
        )
    return DraftSource(topic, schema, None if spec is None else spec.key)


def registered(topic: str) -> Any:
    """Return the Avro schema that the running hub's registry has for a topic;
    None when there is none, or no hub runs."""
    try:
        found = get(f"/subjects/{topic}-value/versions/latest", timeout_s=10.0)
    except HubError:
        return None
    return json.loads(found["schema"]) if found.get("schemaType", "AVRO") == "AVRO" else None


def write_new(files: dict[Path, str]) -> None:
    """Write the files. Raises ConfigError (HUB-1130) when one exists, HUB-1131 when it cannot be written;
    then none is."""
    for path in files:
        if path.exists():
            raise ConfigError(
                f'file "{path}" exists', hint="take another name, or edit the file", code="HUB-1130"
            )
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f'file "{path}" cannot be written ({error.strerror})',
            hint="check the folder's rights",
            code="HUB-1131",
        ) from None
