"""Keep the shape of the code: small folders, clear names, and no more large pieces than there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import house_report
import pytest
import typer

# Pieces that are too large today. A change may lower these numbers, never raise them.
LONG_MODULES, LONG_FUNCTIONS, LARGE_CLASSES = 0, 0, 0


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


# Habits of tests that make refactoring hard or runs slow. As above: a change may lower these numbers.
PRIVATE_MEMBERS, SLEEPS = 82, 94


def test_tests_use_no_more_private_members_and_sleep_no_more_than_before() -> None:
    habits = house_report.habits_of_tests()
    assert len(habits.private) <= PRIVATE_MEMBERS
    assert len(habits.sleeps) <= SLEEPS


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


def test_what_tests_should_not_need_is_found(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "a.py").write_text(
        "self._x = store._rows\nfrom hub.a import _b, "
        "c\ntime.sleep(1)\nasyncio.sleep(0)\nsleep(patient(2))\nos._exit(1)\na.__name__\nrow._replace(a=1)\n"
    )
    habits = house_report.habits_of_tests(tmp_path / "tests")
    assert (habits.private, habits.sleeps) == (
        ("tests/a.py:1", "tests/a.py:2"),
        ("tests/a.py:3", "tests/a.py:5"),
    )


def test_a_letter_that_stands_for_two_options_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def one(topic: Annotated[str, typer.Option("--topic", "-t")] = "") -> None: ...
    def two(tag: Annotated[str, typer.Option("--tag", "-t")] = "") -> None: ...

    monkeypatch.setattr("hub.cli.COMMANDS", {"one": "", "two": ""})
    monkeypatch.setattr("hub.cli.load_command", lambda name: _command(one if name == "one" else two))
    assert house_report.short_options()[1] == {"-t": ["--tag", "--topic"]}


def _command(function: Callable[..., None]) -> Any:
    made = typer.Typer(add_completion=False)
    made.command()(function)
    return typer.main.get_command(made)


def test_the_last_result_of_mutations_is_told_or_unknown(tmp_path: Path) -> None:
    result = tmp_path / "mutations.json"
    assert house_report.mutations(result).startswith("unknown")
    result.write_text('{"caught": 57, "mutants": 60, "unknown": 0, "seed": 3}')
    assert house_report.mutations(result) == "57 of 60 caught (seed 3)"


def test_a_circle_of_imports_is_found() -> None:
    assert house_report.circle({"a": ["b"], "b": ["c", "outside"], "c": []}) == []
    assert set(house_report.circle({"a": ["b"], "b": ["c"], "c": ["b"]})) == {"b", "c"}
