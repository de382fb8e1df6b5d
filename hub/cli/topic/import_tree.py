"""[edge] ``hub topic import``: write the cluster's topics as a tree."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.cli.topic.tree_file import FileOption, connect, load_tree, write_file
from hub.errors import Conflict, HubFault

if TYPE_CHECKING:
    from hub.log import TopicDescription
    from hub.topics.tree.tree import TopicTree


def import_topics(
    file: FileOption = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Write the cluster's topics as a tree; common settings of siblings are written once at their parent.

    A plan right after it has nothing to do. `-f -` prints the tree. Owners, docs, SLOs and schemas are for
    you to add: a cluster does not know them.
    Example: hub topic import -f topics.yaml
    """
    from hub.topics.tree.apply_plan import read_topics
    from hub.topics.tree.import_tree import imported
    from hub.yaml import written

    settings = load_settings()
    path = file or settings.project / "topics.yaml"
    to_stdout = str(path) == "-"
    if path.exists() and not force and not to_stdout:
        raise Conflict(
            f'file "{path}" exists already', hint="another file with -f, or write over it with --force"
        )
    descriptions = read_topics(connect(settings)[0])
    made = imported(descriptions.values())
    text = f"# The topics of {settings.bootstrap}, by hub topic import. Add owner, doc, slo and schema.\n"
    text += written(dict(made.body))
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "topics.yaml"
        copy.write_text(text, encoding="utf-8")
        _check_import(load_tree(settings, copy), descriptions)
    if to_stdout:
        sys.stdout.write(text)
    else:
        write_file(path, text)
        if output is Output.json:
            left = dict(made.left_out)
            show_one({"file": str(path), "topics": list(made.topics), "left_out": left}, output)
        note(f"{len(made.topics)} topics are in {path}. See: hub topic tree -f {path}")
    for name, why in made.left_out.items():
        note(f"Left out: {name} ({why})")


def _check_import(loaded: TopicTree, descriptions: Mapping[str, TopicDescription]) -> None:
    """The promise of an import, kept before a file is touched."""
    from hub.topics.tree.plan import Actual
    from hub.topics.tree.plan import plan as make

    made = make(loaded, Actual(descriptions), {}, None)
    if made.steps or made.refusals:
        first = str([*made.steps, *made.refusals][0])
        raise HubFault(f"import: its own tree would change the cluster: {first}", hint="please report this")
