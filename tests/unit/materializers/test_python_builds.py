"""The function of a PySpark view in its files: checks without running it, and what defines the view."""

from __future__ import annotations

from pathlib import Path

import pytest

from hub.errors import ConfigError
from hub.materializers.dataframes.declared_build import local_imports
from hub.materializers.definition.column_lineage import made_of
from hub.materializers.definition.load import body_of, definition_text, files_of, load_view, view_of
from hub.materializers.definition.sql_checks import checked
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.planning.validation import check_python

HEAD = "view: v\nkey: id\nsources: {p: {topic: t, format: json, schema: {id: bigint, n: bigint}}}\n"
BUILD = "def build(p):\n    return p\n"


def load(folder: Path, python: str = "v.py", text: str = BUILD, more: str = "") -> SqlView:
    (folder / "v.yaml").write_text(f"{HEAD}python: {python}\n{more}")
    (folder / "v.py").write_text(text)
    view = load_view(folder / "v.yaml")
    assert isinstance(view, SqlView)
    return view


@pytest.mark.parametrize(
    "python", ["v.py", "v.py:build", "views/v.py:build", "{file: v.py, function: build}"]
)
def test_a_function_is_named_by_file_and_name(tmp_path: Path, python: str) -> None:
    view = load(tmp_path, python)
    assert view.python is not None
    assert (view.python.file, view.python.function, view.python.text) == ("v.py", "build", BUILD)
    assert view.has_python


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("def built(p):\n    return p\n", 'no function "build"', None),
        ("\ndef build(q):\n    return q\n", "parameters are not the sources", 2),
        ("def build(p, q):\n    return q\n", "parameters are not the sources", 1),
        ("def build(*p):\n    return p\n", "parameters are not the sources", 1),
        ("async def build(p):\n    return p\n", "is async", 1),
        ("def build(p)\n    return p\n", "no valid Python", 1),
    ],
)
def test_a_wrong_function_is_refused_without_running_it(
    tmp_path: Path, text: str, said: str, line: int | None
) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        load(tmp_path, text=text)
    assert raised.value.where == f"{tmp_path / 'v.py'}" + (f":{line}" if line else "")
    assert raised.value.code == "HUB-2156"


@pytest.mark.parametrize(
    ("python", "more", "said"),
    [
        ("w.py", "", "did you mean v.py"),
        ("../v.py", "", "python"),
        ("v.py", "sql: SELECT id FROM p\n", "not both"),
        ("v.py", "mode: realtime\n", "runs in batches"),
    ],
)
def test_a_wrong_declaration_is_refused(tmp_path: Path, python: str, more: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load(tmp_path, python, more=more)
    assert said in str(raised.value)


def test_a_view_needs_rows(tmp_path: Path) -> None:
    (tmp_path / "v.yaml").write_text(f'{HEAD}sql: ""\n')
    with pytest.raises(ConfigError, match="write `sql:` or `python:`"):
        load_view(tmp_path / "v.yaml")


def test_the_files_of_the_folder_that_are_imported_define_the_view(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    files = {
        "rules/__init__.py": "",
        "rules/cards.py": "from .limits import MOST\n",
        "rules/limits.py": "MOST = 3\n",
        "unread.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    text = f"import json\nfrom rules import cards\n\n\n{BUILD}"
    view = load(tmp_path, text=text)
    assert view.python is not None
    assert list(view.python.imports) == ["rules/__init__.py", "rules/cards.py", "rules/limits.py"]
    assert [each.relative_to(tmp_path).as_posix() for each in files_of(tmp_path / "v.yaml")] == [
        "v.yaml", "v.py", "rules/__init__.py", "rules/cards.py", "rules/limits.py",
    ]  # fmt: skip
    before = definition_text(tmp_path / "v.yaml")
    (tmp_path / "rules" / "limits.py").write_text("MOST = 4\n")
    assert definition_text(tmp_path / "v.yaml") != before
    assert view_of(body_of(view)) == view


def test_imports_that_go_in_a_circle_end() -> None:
    files = {"a.py": "import b", "b.py": "import a\nimport c", "c.py": "(no Python"}
    assert list(local_imports("v.py", "import a", files.get)) == ["a.py", "b.py", "c.py"]


def test_more_files_than_a_view_may_import_are_refused() -> None:
    files = {f"m{n}.py": f"import m{n + 1}" for n in range(60)}
    with pytest.raises(ConfigError, match="50 files"):
        local_imports("v.py", "import m0", files.get)


def built(tmp_path: Path, sql: str, lines: list[int], text: str = BUILD) -> SqlView:
    view = load(tmp_path, text=text)
    assert view.python is not None
    return view.model_copy(update={"sql": sql, "python": view.python.model_copy(update={"lines": lines})})


def test_an_error_of_the_sql_names_the_line_of_python(tmp_path: Path) -> None:
    text = "def build(p):\n    return p.select(\n        'id',\n        F.current_date(),\n    )\n"
    view = built(tmp_path, "SELECT\n  p.id AS id,\n  current_date() AS day\nFROM p", [2, 3, 4, 1], text)
    with pytest.raises(ConfigError, match="another value on every replay") as raised:
        checked(view, {"p": view.sources["p"].declared})
    assert raised.value.where == "v.py:4"
    assert "F.current_date()" in raised.value.message
    assert "SQL line" not in raised.value.message


def test_columns_have_the_lineage_of_the_plan(tmp_path: Path) -> None:
    sql = "SELECT t1.id AS id, t1.m AS twice FROM (SELECT p.id AS id, (p.n * 2) AS m FROM p) AS t1"
    view = built(tmp_path, sql, [1])
    assert made_of(body_of(view)) == {"id": (("t", "id"),), "twice": (("t", "n"),), "": ()}


def test_a_function_that_has_not_run_has_no_columns(tmp_path: Path) -> None:
    view = load(tmp_path)
    with pytest.raises(ConfigError, match="build has not run"):
        checked(view, {"p": view.sources["p"].declared})


def test_python_that_is_turned_off_is_refused(tmp_path: Path) -> None:
    view = load(tmp_path)
    check_python(view, "trusted")
    with pytest.raises(ConfigError, match="turned off") as raised:
        check_python(view, "off")
    assert raised.value.code == "HUB-2153"
