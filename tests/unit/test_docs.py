"""Documentation matches the tree: every package is described, examples are valid,
links and commands exist."""

from __future__ import annotations

import html
import importlib
import re
from pathlib import Path

import pytest
import yaml
from reference import http_api, yaml_files

from hub.access.access_yaml import load_access
from hub.cli.view.schemas_source import schemas_of
from hub.help.pages import slug
from hub.materializers.definition.compiling.compiler import shape
from hub.materializers.definition.load import load_view
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlSource, SqlView
from hub.materializers.planning.classify import classify
from hub.materializers.planning.delta_inputs import planned
from hub.observability.web.pages.monitor.views import ways
from hub.replication.config.load_mirrors import load as load_mirrors
from hub.topics.tree.tree import load as load_tree

from .cli.written import commands, trouble

ROOT = Path(__file__).parents[2]


def test_the_map_names_every_package_and_no_other_path() -> None:
    text = (ROOT / "docs/reference/packages.md").read_text()
    packages = {f"{path.parent.relative_to(ROOT)}/" for path in (ROOT / "hub").rglob("*/__init__.py")}
    assert set(re.findall(r"`(hub/[a-z0-9_/]+/)`", text)) == packages
    drawing = (ROOT / "docs/explanation/architecture.md").read_text()
    for path in re.findall(r"\bhub/[a-z0-9_/]+(?:\.py)?", text + drawing):
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
    if isinstance(view, SqlView) and view.python is not None:
        assert view.python.text, "test_golden.py runs it"
    elif isinstance(view, SqlView):
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


DOCUMENTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "bench/README.md",
]
# Pages of one of the four kinds, and runbooks. A decision record is as it was written.
PAGES = [path for path in DOCUMENTS if path.is_relative_to(ROOT / "docs") and path.parent.name != "adr"]
_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_page_is_of_one_kind() -> None:
    kinds = {"tutorials", "how-to", "reference", "explanation", "comparisons", "runbooks"}
    assert {_name(path) for path in PAGES if path.parent.name not in kinds} == {"docs/index.md"}


@pytest.mark.parametrize("document", DOCUMENTS, ids=_name)
def test_every_link_leads_somewhere(document: Path) -> None:
    text = _BLOCK.sub("", document.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        found = document.parent / path if path else document
        assert found.exists(), target
        if anchor and found.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", _BLOCK.sub("", found.read_text()), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, target


@pytest.mark.parametrize("document", PAGES, ids=_name)
def test_pages_and_the_cells_of_their_tables_are_short(document: Path) -> None:
    text = document.read_text()
    assert document.parent.name == "reference" or len(text.split()) <= 1_500
    for line in _BLOCK.sub("", text).splitlines():
        if line.startswith("|"):
            assert all(len(cell.split()) <= 25 for cell in line.split("|")), line


def test_the_walks_are_three_hops_from_the_readme() -> None:
    """README links the architecture, which links the packages, which name the folder;
    its docstring names the file."""
    walks = (ROOT / "docs/explanation/walks.md").read_text().split("\n## ")[1:]
    assert len(walks) == 3
    assert "docs/explanation/walks.md" in (ROOT / "README.md").read_text()
    for walk in walks:
        title, steps = walk.splitlines()[0], re.findall(r"^\d+\. `(hub/[^`]+)`(.*)$", walk, re.MULTILINE)
        files = {path for path, _ in steps}
        assert 3 <= len(files) <= 20, title
        package, (named,) = steps[0][0], re.findall(r"names `([a-z_]+\.py)`", steps[0][1])
        folder = package.removesuffix("__init__.py")
        assert f"`{folder}`" in (ROOT / "docs/reference/packages.md").read_text(), folder
        assert named in (ROOT / package).read_text() and f"{folder}{named}" in files, named
        for path, text in steps:
            assert (ROOT / path).is_file(), (
                f"docs/explanation/walks.md: {path} does not exist: name the new file"
            )
            for symbol in re.findall(r"`([A-Za-z_]+)`", text):
                assert re.search(rf"\b{symbol}\b", (ROOT / path).read_text()), (
                    f"docs/explanation/walks.md: {path} has no {symbol}: name the new one"
                )


def _files_of(tutorial: Path) -> dict[str, str]:
    """Return the files that a tutorial has its reader write, by their names."""
    blocks = re.findall(
        r"^```(?:yaml|json)\n(?:#|//) (\S+)\n(.*?)^```", tutorial.read_text(), re.MULTILINE | re.DOTALL
    )
    return dict(blocks)


@pytest.mark.parametrize(
    "tutorial", sorted((ROOT / "docs/tutorials").glob("*.md")), ids=lambda path: path.stem
)
def test_the_files_of_the_tutorials_are_right(tutorial: Path, tmp_path: Path) -> None:
    files = _files_of(tutorial)
    assert files
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    for name in files:
        path = tmp_path / name
        if path.name == "topics.yaml":
            assert load_tree(path).topics
        elif path.name == "mirrors.yaml":
            assert load_mirrors(path).mirrors
        elif path.name == "access.yaml":
            assert load_access(path).users
        elif path.parent.name == "views":
            view = load_view(path)
            schemas, unknown = schemas_of(path.parents[1], view)
            assert not unknown and not isinstance(view, SqlView)
            assert [each for each, _ in shape(view, schemas).outputs] == list(view.columns)


def test_hub_init_writes_the_files_of_the_first_tutorial() -> None:
    files = _files_of(ROOT / "docs/tutorials/first-view.md")
    example = ROOT / "examples/first-view"
    written = {
        f"tea/{path.relative_to(example)}": path.read_text() for path in example.rglob("*") if path.is_file()
    }
    assert written == files


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_command_that_is_written_down_is_one(document: Path) -> None:
    if document.name == "cli.md":
        return  # generated from the commands themselves, with their usage lines
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


def test_what_the_generated_pages_are_made_of_is_there() -> None:
    """A model or a router that moved is found here, and not only by the test that compares the pages."""
    assert {file for file, _, _ in yaml_files.FILES} and http_api.ROUTERS
    for name in http_api.ROUTERS:
        assert hasattr(importlib.import_module(name), "create_router"), f"tests/reference/http_api.py: {name}"


FEATURES = ROOT / "docs/reference/features.md"
COMPARISONS = sorted((ROOT / "docs/explanation/comparisons").glob("*.md"))
_VALUES = {"yes", "partly", "license", "no", "not documented", "not needed", ""}


def _rows(text: str, heading: str) -> list[list[str]]:
    """Return the cells of all rows of the tables whose header begins with ``| heading |``."""
    tables = re.findall(rf"^\| {heading} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    lines = [line for table in tables for line in table.splitlines()]
    return [[cell.strip() for cell in line.removeprefix("|").removesuffix("|").split("|")] for line in lines]


def _tests_of(file: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (test_\w+)", file.read_text(), re.MULTILINE))


def test_each_feature_has_a_page_and_a_test_that_exists() -> None:
    rows = _rows(FEATURES.read_text(), "feature")
    assert len(rows) > 60 and len({row[0] for row in rows}) == len(rows)
    for feature, hub, test, *peers in rows:
        assert set(peers) <= _VALUES, feature
        if hub == "no":
            assert not test, feature
            continue
        assert re.fullmatch(r"\[(yes|partly)\]\(\S+\)", hub), feature
        found = re.fullmatch(r"`(tests/\S+\.py)::(test_\w+)`", test)
        assert found, f"{feature}: name one test, as `tests/FOLDER/FILE.py::test_NAME`"
        assert (ROOT / found[1]).is_file() and found[2] in _tests_of(ROOT / found[1]), f"{feature}: {test}"


@pytest.mark.parametrize("page", COMPARISONS, ids=lambda path: path.stem)
def test_a_comparison_says_yes_only_of_features_with_a_test(page: Path) -> None:
    """Its features are rows of the reference with the same value; the other side's cells have a source."""
    values = {feature: hub for feature, hub, *_ in _rows(FEATURES.read_text(), "feature")}
    text = page.read_text()
    if page.stem == "README":
        assert all(f"({other.name})" in text for other in COMPARISONS if other != page)
        return
    rows = _rows(text, "feature")
    assert len(rows) >= 6 and "\n## Choose " in text.split("\n| feature")[0]
    for feature, hub, *others in rows:
        assert feature in values, f"{page.name}: {feature} is not a row of docs/reference/features.md"
        own, reference = (re.match(r"\[?(yes|partly|no)\b", cell) for cell in (hub, values[feature]))
        assert own and reference and own[1] == reference[1], f"{page.name}: {feature}"
        assert own[1] == "no" or re.search(r"\]\(\.\./\S+\.md", hub), f"{page.name}: {feature}: no link"
        for other in others:
            cited = "](https://" in other or re.match(r"not (documented|compared)\b", other)
            assert cited, f"{page.name}: {feature}: {other} needs a link to the documentation"


def test_each_symptom_has_a_code_or_words_of_the_hub() -> None:
    """A code is in the catalog; a state or message without one occurs in the sources of the hub."""
    catalog = yaml.safe_load((ROOT / "tests/reference/errors.yaml").read_text())
    sources = "".join(path.read_text() for path in (ROOT / "hub").rglob("*.py"))
    rows = _rows((ROOT / "docs/reference/troubleshooting.md").read_text(), "symptom")
    assert len(rows) >= 40
    for symptom, cause, way_out in rows:
        codes = re.findall(r"HUB-\d{4}", symptom)
        words = [each for each in re.findall(r"`([^`]+)`", symptom) if not each.startswith("hub ")]
        assert codes or words, symptom
        assert not [code for code in codes if code not in catalog], symptom
        assert not [each for each in words if each not in sources], symptom
        assert cause and way_out, symptom
