"""Random SELECTs over the stores answer as a real Postgres does over the same rows."""

from __future__ import annotations

from pathlib import Path

from differential.compare import Found, Pair, run
from differential.worlds import random_world
from postgres import Postgres

SEED, STATEMENTS = 1, 300


def test_random_statements_answer_as_postgres_does(postgres: Postgres, tmp_path: Path) -> None:
    found = Found()
    with random_world(postgres, tmp_path, "random") as (stores, judge):
        pair = Pair(stores, judge, SEED)
        run(pair, SEED, STATEMENTS, found)
        pair.close()
    again = f"./run bench differential --first {SEED} --statements {STATEMENTS}"
    assert not found.different, "\n".join([*found.different[:5], again])
    assert not found.refused, found.refused.most_common(5)
    # Postgres itself refuses some, such as a number out of its range.
    assert found.asked == STATEMENTS and found.equal == 2 * (STATEMENTS - found.failed)
    assert found.failed < STATEMENTS / 10
