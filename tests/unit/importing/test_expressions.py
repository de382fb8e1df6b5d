"""Tokens of imported statements as SQL text."""

from __future__ import annotations

import pytest

from hub.importing.expressions import joined_text, parsed, plain_text
from hub.importing.statements import tokenize


@pytest.mark.parametrize("text", ["name = 'O''Hara'", "`Odd Name` <> ''", "a . b = 'x.y'"])
def test_a_text_keeps_its_quotes(text: str) -> None:
    tokens = tokenize(text)
    assert joined_text(tokens) == text.replace(" . ", ".")
    assert parsed(plain_text(tokens)).sql() == parsed(text).sql()


def test_names_of_ksqldb_become_lower_case_and_arrows_become_dots() -> None:
    assert plain_text(tokenize("PERSON->CITY = 'Oslo' AND `Keep` = 1")) == (
        "person.city = 'Oslo' and `Keep` = 1"
    )
