"""The generated pages are fresh, the error catalog is complete,
and the site has what the server shows at /help."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import markdown
import pytest
import yaml
from fastapi.testclient import TestClient
from reference import FOLDER, errors, metrics, pages, settings

from hub.api.app import create_app
from hub.config import Settings
from hub.help.mkdocs_hook import with_room_before_lists
from hub.help.pages import INDEX, contents, folder, page, slug, without_outside_links

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"HUB-\d{4}")


def _sources() -> list[Path]:
    return [path for kind in ("*.py", "*.html") for path in sorted((ROOT / "hub").rglob(kind))]


def test_the_generated_pages_are_fresh() -> None:
    for name, text in pages().items():
        assert (FOLDER / name).read_text() == text, f"docs/reference/{name} is not fresh: ./run docs"


def test_the_error_catalog_has_each_code_once_and_no_other() -> None:
    raised = {code for path in _sources() for code in CODE.findall(path.read_text())}
    catalog = errors.catalog()
    assert sorted(raised - catalog.keys()) == [], "add them to tests/reference/errors.yaml"
    assert sorted(catalog.keys() - raised) == [], "nothing raises them"
    lines = errors.CATALOG.read_text().splitlines()
    codes = [line.partition(":")[0] for line in lines if line.startswith("HUB-")]
    assert codes == sorted(set(codes))
    for code, (meaning, way_out) in catalog.items():
        assert meaning[-1] in ".!" and way_out[-1] in ".!", code
        assert max(len(meaning.split()), len(way_out.split())) <= 25, code


def test_the_example_of_the_settings_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hub.yaml").write_text(settings.example())
    monkeypatch.chdir(tmp_path)
    read = Settings()
    for name, value in yaml.safe_load(settings.example()).items():
        assert name in Settings.model_fields and getattr(read, name) is not None, (name, value)


def test_every_series_that_is_named_is_listed() -> None:
    """Those of the rules, of the dashboard and of the pages that name them whole."""
    listed = {each.name for each in metrics.series(ROOT)}
    listed |= {f"{name}{end}" for name in listed for end in ("_bucket", "_sum", "_count")}
    files = [ROOT / "deploy/prometheus/rules.yaml", ROOT / "deploy/grafana/hub.json"]
    named = {name for path in files for name in re.findall(r"\bhub_[a-z_]+\b", path.read_text())}
    assert len(named) > 20
    assert sorted(named - listed) == []


class _Count(HTMLParser):
    """Numbers of list entries, rows of tables and blocks of code."""

    def __init__(self) -> None:
        super().__init__()
        self.found = {"li": 0, "tr": 0, "pre": 0, "h2": 0}

    def handle_starttag(self, tag: str, _: object) -> None:
        if tag in self.found:
            self.found[tag] += 1


def _counted(html: str) -> dict[str, int]:
    count = _Count()
    count.feed(html)
    return count.found


NAMES = [INDEX, *(name for section in contents() for name, _ in section.pages)]


@pytest.mark.parametrize("name", NAMES)
def test_the_site_and_the_server_show_the_same(name: str) -> None:
    """mkdocs and the server have different renderers: lists, tables and code must come out alike."""
    text = without_outside_links((folder() / f"{name}.md").read_text(), f"{name}.md")
    site = markdown.markdown(with_room_before_lists(text), extensions=["tables", "fenced_code"])
    assert _counted(page(name).html) == _counted(site)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    """The server without lifespan: help needs neither Kafka nor a store."""
    home = tmp_path_factory.mktemp("help")
    return TestClient(create_app(Settings(home=home, project=home, allowed_hosts=["testserver"])))


def test_every_link_of_every_page_is_answered(client: TestClient) -> None:
    known: dict[str, str] = {}
    for name in NAMES:
        address = "/help" if name == INDEX else f"/help/{name}"
        answer = client.get(address)
        assert answer.status_code == 200, address
        known[address] = answer.text
    for address, text in known.items():
        for target in re.findall(r'(?:href|src)="(/help[^"]*)"', text):
            path, _, anchor = target.partition("#")
            if path.startswith("/help/images/"):
                assert client.get(path).headers["content-type"] == "image/png", target
            else:
                assert path in known, (address, target)
                assert not anchor or f'id="{anchor}"' in known[path], (address, target)
        assert not re.findall(r'(?:src|href)="(?!/|#|https?:)[^"]*"', text), address
    assert client.get("/help/").url.path in ("/help", "/help/")
    missing = client.get("/help/reference/sqll")
    assert missing.status_code == 404 and "/help/reference/sql" in missing.text


def test_a_link_out_of_the_docs_becomes_its_path() -> None:
    assert without_outside_links("[x](../run) [y](b.md)", "a.md") == "x (`run`) [y](b.md)"
    assert slug("Several views at one place: `cut`") == "several-views-at-one-place-cut"
