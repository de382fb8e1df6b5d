"""``hub view validate`` and ``explain``: from the files alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hub.cli import main

FLIGHTS = Path(__file__).parents[3] / "examples" / "flights"


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_explain_says_class_reason_sources_and_key(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", "explain", "departures_by_hour", "--project", str(FLIGHTS), "-o", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["class"], told["key"], told["key from"]) == ("B", ["origin", "hour"], "GROUP BY")
    assert "tumbling window" in told["why"]
    assert told["source departures"]["watermark"] == "3 hours"
    assert told["late events"] == "views.departures_by_hour.late"
    assert run("view", "explain", "aircraft_360", "--project", str(FLIGHTS), "-o", "json") == 0
    assert json.loads(capsys.readouterr().out)["class"] == "entity"


def test_explain_of_a_view_without_file_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("view", "explain", "aircraft_36", "--project", str(FLIGHTS)) == 1
    assert 'did you mean "aircraft_360"?' in capsys.readouterr().err


def test_validate_names_the_class_and_stops_at_a_mistake(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    views = tmp_path / "views"
    views.mkdir()
    text = "view: often\nsources: {e: {topic: a}}\nsql: SELECT id, count(*) AS n FROM e GROUP BY id"
    (views / "often.yaml").write_text(text + " HAVING count(*) > 1\n")
    assert run("view", "validate", str(tmp_path)) == 0
    assert "often.yaml: well formed" in capsys.readouterr().err
    (views / "often.yaml").write_text(text.replace("count(*)", "rand()") + "\n")
    assert run("view", "validate", str(tmp_path)) == 1
    told = capsys.readouterr().err
    assert "often.yaml" in told and "SQL line 1, column 12: `rand`" in told
