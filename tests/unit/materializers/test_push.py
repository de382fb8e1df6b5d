"""Event ids of subscriptions: what a client hands back is the place that it was."""

from __future__ import annotations

import pytest

from hub.errors import CallerError
from hub.materializers.push import Place, parse_event_id
from hub.record import Positions

AT = Positions.of([("views.v", 0, 3), ("views.v", 1, 0)])


# Topic ids are base64 with "+" and "/", and a swept view adds a mark; keys are anybody's text.
@pytest.mark.parametrize(
    "incarnation", ["aVvpPY86T6Wm64CszHIsIQ", "U/zWUdCEQU6i+jEyLJe5VA.1099511627776", "//", ""]
)
@pytest.mark.parametrize("after", [None, "", "a/b", "50 %", "é\n/+"])
def test_an_event_id_comes_back_as_the_place_it_was(incarnation: str, after: str | None) -> None:
    place = Place(incarnation, AT, after)
    text = str(place)
    assert text.isascii() and text.isprintable()
    assert parse_event_id(text) == place


@pytest.mark.parametrize("text", ["abc", "a/b/c/d"])
def test_an_id_of_somebody_else_is_refused(text: str) -> None:
    with pytest.raises(CallerError, match="not one that this server sent"):
        parse_event_id(text)
    assert parse_event_id("") is None
