"""Keep the shape of the code: small folders, clear names, and no more large pieces than there are."""

from __future__ import annotations

from pathlib import Path

import house_report
import pytest

# Pieces that are too large today. A change may lower these numbers, never raise them.
LONG_MODULES, LONG_FUNCTIONS, LARGE_CLASSES = 72, 61, 17


@pytest.fixture(scope="module")
def measures() -> house_report.Measures:
    return house_report.measured()


def test_a_folder_has_at_most_15_modules(measures: house_report.Measures) -> None:
    assert measures.crowded() == {}


def test_a_class_name_stands_for_one_class_of_a_package(measures: house_report.Measures) -> None:
    assert measures.ambiguous_classes() == {}


def test_there_are_no_more_large_pieces_than_before(measures: house_report.Measures) -> None:
    assert len(measures.long_modules()) <= LONG_MODULES
    assert len(measures.long_functions()) <= LONG_FUNCTIONS
    assert len(measures.large_classes()) <= LARGE_CLASSES


def test_every_package_tells_what_it_is() -> None:
    root = house_report.ROOT
    silent = [
        path.relative_to(root).as_posix()
        for path in (root / "hub").rglob("__init__.py")
        if not path.read_text(encoding="utf-8").lstrip().startswith(('"""', 'r"""'))
    ]
    assert silent == []


def test_what_is_too_large_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "hub" / "a"
    folder.mkdir(parents=True)
    body = "    x = 1\n" * 60
    method = "    def long(self) -> None:\n" + body.replace("    x", "        x")
    (folder / "one.py").write_text(f"class Log:\n{method}")
    (folder / "two.py").write_text(
        f"class Log:\n    pass\n\n\ndef long() -> None:\n{body}" + "# more\n" * 400
    )
    for number in range(14):
        (folder / f"m{number}.py").write_text("")
    found = house_report.measured(tmp_path)
    assert found.crowded() == {"hub/a": 16}
    assert found.ambiguous_classes() == {"hub/a: Log": ["hub/a/one.py", "hub/a/two.py"]}
    assert [each.path for each in found.long_functions()] == ["hub/a/one.py", "hub/a/two.py"]
    assert list(found.long_modules()) == ["hub/a/two.py"]


def test_a_circle_of_imports_is_found() -> None:
    assert house_report.circle({"a": ["b"], "b": ["c", "outside"], "c": []}) == []
    assert set(house_report.circle({"a": ["b"], "b": ["c"], "c": ["b"]})) == {"b", "c"}
