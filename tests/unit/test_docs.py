"""Documentation matches the tree: every package is described, examples are valid, links and commands exist."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest
import yaml

from hub.cli.view.schemas_source import schemas_of
from hub.materializers.definition.entity_plan import shape
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_view import SqlSource, SqlView, checked
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_inputs import planned
from hub.observability.web.pages.monitor.views import ways

from .cli.written import commands, trouble

ROOT = Path(__file__).parents[2]


def test_the_map_names_every_package_and_no_other_path() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "hub").rglob("*/__init__.py")}
    assert set(re.findall(r"`(hub/[a-z0-9_/]+/)`", text)) == packages
    for path in re.findall(r"\bhub/[a-z0-9_/]+(?:\.py)?", text):
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize(
    "file", sorted((ROOT / "examples").glob("*/views/*.yaml")), ids=lambda file: file.stem
)
def test_the_example_views_compile_against_their_schemas(file: Path) -> None:
    view = load_view(file)
    schemas, unknown = schemas_of(file.parents[1], view)
    for name in unknown:
        source = view.sources[name]
        assert isinstance(source, SqlSource)
        assert source.view is not None
        assert (file.parent / f"{source.view}.yaml").exists()
    if isinstance(view, SqlView):
        classified = classify(checked(view, schemas))
        if not classified.native and len(schemas) == len(view.sources):
            assert planned(classified, schemas).view.handle
    else:
        assert [name for name, _ in shape(view, schemas).outputs] == list(view.columns)
    assert len(file.read_text().splitlines()) <= 60


def test_the_view_over_tables_in_the_docs_is_that_of_the_example() -> None:
    (block,) = re.findall(
        r"^```yaml\n(view: orders_with_customers\n.+?)^```",
        (ROOT / "docs/reference/sql-views.md").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    shown = SqlView.model_validate(yaml.safe_load(block))
    example = load_view(ROOT / "examples/sql-views/views/orders_with_customers.yaml")
    assert isinstance(example, SqlView)
    assert (shown.sources, shown.sql, shown.key) == (example.sources, example.sql, example.key)


def test_the_readme_is_short_and_its_links_lead_somewhere() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 60
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        assert (ROOT / target).exists(), target


DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "bench/README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_written_down_is_one(document: Path) -> None:
    assert [each for command in commands(document.read_text()) if (each := trouble(command))] == []


def test_every_command_of_the_pages_is_one() -> None:
    templates = (ROOT / "hub/observability/web/templates").rglob("*.html")
    said = [
        html.unescape(re.sub(r"\{\{.*?\}\}", "NAME", each))
        for template in templates
        for each in re.findall(r"<code>(hub [^<]*)</code>", template.read_text())
    ]
    said += [way.command for way in ways("v", ["city"], "K 1", "http://h") if way.command.startswith("hub ")]
    assert len(said) > 15
    assert [each for command in said if (each := trouble(command))] == []


def test_a_command_that_is_none_is_found() -> None:
    for wrong in ("hub watch v C-1", "hub lagg", "hub mirror failback m --now", "hub sql --key a | head"):
        assert trouble(wrong), wrong
    for right in (
        "hub lag -s stopped --watch",
        "hub completeness run TOPIC",
        "hub sql -c 'SELECT 1' | head",
        "hub topic",
    ):
        assert not trouble(right), right
