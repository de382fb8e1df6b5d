"""The planted mutations: every kind is made, the sample follows from its seed,
and a mutant replaces its module."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
from mutations.core import DECISIONS, ROOT, core_modules
from mutations.covering import covering, distances, import_map, imported
from mutations.equivalent import EQUIVALENT
from mutations.mutants import mutants, sample
from mutations.planted import MutantFinder

SOURCE = '''"""[core] Says 1 < 2."""
LIMIT = 10


@decorated(1)
def late(at: int, until: int = 3, *, exact: bool = False) -> int:
    """At most 5."""
    if at <= until and not exact:
        return at + 1
    elif at == 7:
        note(at, until)
    else:
        log.info("%d", 9)
        raise ValueError(f"{at} > {until + 1}")
    return max(at, 2)
'''


def changes(kind: str) -> set[tuple[str, str]]:
    return {(each.before, each.after) for each in mutants("m", SOURCE) if each.kind == kind}


def test_each_kind_of_change_is_made() -> None:
    assert changes("comparison") == {("at <= until", "(at < until)"), ("at == 7", "(at != 7)")}
    assert ("not exact", "(exact)") in changes("and/or/not")
    assert ("at <= until and not exact", "(at <= until or not exact)") in changes("and/or/not")
    assert changes("sign") == {("at + 1", "(at - 1)")}
    assert {("10", "11"), ("10", "9"), ("7", "8"), ("2", "3"), ("3", "4")} <= changes("boundary")
    assert changes("constant") == {("False", "True"), ("max", "min")}
    assert ("note(at, until)", "note(until, at)") in changes("swapped arguments")
    assert changes("removed call") == {("note(at, until)", "pass")}
    assert changes("removed return") == {
        ("return at + 1", "return None"),
        ("return max(at, 2)", "return None"),
    }
    assert ("at == 7", "False") in changes("deleted branch")


def test_texts_for_people_and_types_are_left_alone() -> None:
    befores = {each.before for each in mutants("m", SOURCE)}
    assert not befores & {"1 < 2", "5", "9", "until + 1", '"%d"'}
    assert all(each.source.count("@decorated(1)") == 1 for each in mutants("m", SOURCE))


def test_a_mutant_is_the_module_with_one_change() -> None:
    for each in mutants("m", SOURCE):
        assert each.source != SOURCE and each.after in each.source
        compile(each.source, "m", "exec")
    flipped = next(each for each in mutants("m", SOURCE) if each.kind == "comparison")
    assert "-    if at <= until and not exact:" in flipped.diff(SOURCE)
    assert flipped.name == "m:8 comparison: at <= until → (at < until)"


def test_a_sample_follows_from_its_seed_and_has_all_kinds() -> None:
    sources = {"a": SOURCE, "b": SOURCE}
    names = [each.name for each in sample(sources, 3, 9)]
    assert (
        names
        == [each.name for each in sample(sources, 3, 9)]
        != [each.name for each in sample(sources, 4, 9)]
    )
    assert len({each.kind for each in sample(sources, 3, 9)}) == 9
    assert len(set(names)) == 9 and len(sample(sources, 3, 10_000)) == len(mutants("a", SOURCE)) * 2


def test_the_tests_of_a_module_are_those_whose_imports_reach_it_nearest_first() -> None:
    imports = {
        "hub.a.core": set[str](),
        "hub.a.shell": {"hub.a.core"},
        "tests/unit/a/test_shell.py": {"hub.a.shell"},
        "tests/unit/test_core.py": {"hub.a.core"},
        "tests/unit/test_other.py": {"hub.b"},
    }
    assert distances("hub.a.core", imports)["tests/unit/a/test_shell.py"] == 2
    assert covering("hub.a.core", imports) == ["tests/unit/test_core.py", "tests/unit/a/test_shell.py"]
    assert imported("def f():\n    from a.b import c\nimport d") == {"a.b", "a.b.c", "d"}


def test_every_module_of_the_core_has_unit_tests() -> None:
    modules, imports = core_modules(), import_map(ROOT)
    assert [
        folder
        for folder in DECISIONS
        if not any(each.startswith(folder.replace("/", ".")) for each in modules)
    ] == []
    assert [module for module in modules if not covering(module, imports)] == []


def test_an_equivalent_mutant_is_one_of_today_and_has_a_reason() -> None:
    modules = core_modules()
    for each in EQUIVALENT:
        made = mutants(each.module, modules[each.module].read_text(encoding="utf-8"))
        assert each.reason and any((m.before, m.after) == (each.before, each.after) for m in made), each


def test_a_mutant_is_imported_in_the_place_of_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mutated_example.py").write_text("LIMIT = 10\n")
    (tmp_path / "mutant.txt").write_text("LIMIT = 11\n")
    monkeypatch.syspath_prepend(tmp_path)
    finder = MutantFinder("mutated_example", tmp_path / "mutant.txt")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    module = importlib.import_module("mutated_example")
    monkeypatch.delitem(sys.modules, "mutated_example")
    assert module.LIMIT == 11 and module.__file__ == str(tmp_path / "mutated_example.py")
    assert (
        not list(tmp_path.rglob("*.pyc")) and (tmp_path / "mutated_example.py").read_text() == "LIMIT = 10\n"
    )
