"""Cells of CSV that a spreadsheet would run."""

from __future__ import annotations

import pytest

from hub.csv_cells import in_cell


@pytest.mark.parametrize(
    "text", ["=1+1", "+cmd", "-x", "@SUM(A1)", "\t=1", "\r=1", "-1+1", "=", "--5", "-", "+1 2"]
)
def test_what_would_run_has_an_apostrophe_before_it(text: str) -> None:
    assert in_cell(text) == f"'{text}"


@pytest.mark.parametrize(
    "value", [-5, -5.5, "-5", "+5", "-.5e3", "-1E-7", "a=1", "", None, True, "'=1", " =1"]
)
def test_numbers_and_other_texts_stay(value: object) -> None:
    assert in_cell(value) == value
