"""Keep the language plain: no more private words than there are, and no giant cells in tables."""

from __future__ import annotations

from pathlib import Path

import prose_report
import pytest

# Texts that break a rule of tests/prose_report.py today. A change may lower these numbers, never raise them.
MOST = {"docs": 5, "ADR": 6, "messages": 0, "docstrings": 2, "comments": 0}


@pytest.mark.parametrize("kind", MOST)
def test_there_are_no_more_private_words_than_before(kind: str) -> None:
    found = prose_report.places(kind)
    assert len(found) <= MOST[kind], "rewrite the new ones in plain words (CONTRIBUTING.md):\n" + "\n".join(
        found
    )


def test_no_page_has_a_giant_cell() -> None:
    pages = sorted((prose_report.ROOT / "docs").rglob("*.md"))
    giant = {str(page): cells for page in pages if (cells := prose_report.giant_cells(page.read_text()))}
    assert pages and not giant


def test_what_breaks_a_rule_is_found(tmp_path: Path) -> None:
    breaking = {
        "docstrings": "What was asked, and by whom.",
        "messages": '"x" is no state: hub doctor tells more',
        "comments": "the mirror goes on where it was told to",
        "docs": "Who comes is not known to it.",
    }
    assert all(prose_report.is_private(kind, text) for kind, text in breaking.items())
    plain = (
        "A dead-letter record is no longer open.",
        "Java's heap is full.",
        "The applier writes the rows.",
    )
    assert not any(prose_report.is_private("docs", text) for text in plain)
    assert prose_report.giant_cells("| a | " + "word " * 26 + "|\n| b | c |") == [" " + "word " * 26]
    source = '"""Whether it is.\n\nMore."""\n# said so\nraise ValueError("what was not there is missing")\n'
    assert [kind for _, kind, text in prose_report.texts_of_python(source)] == [
        "docstrings",
        "messages",
        "comments",
    ]


def test_the_changelog_names_each_change_once() -> None:
    lines = (prose_report.ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    entries = [line for line in lines if line.startswith("- ")]
    assert entries and len(set(entries)) == len(entries)
