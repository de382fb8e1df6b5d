"""The contract of stores on the kinds that need no server, and what only they do: files, locks, merges and crashes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import store_contract
from store_contract import Open

from hub.materializers.stores.named import open_store

URLS: dict[str, Callable[[Path], str]] = {
    "sqlite": lambda folder: f"sqlite:///{folder / 'store.db'}",
    "duckdb": lambda folder: f"duckdb:///{folder / 'store.duckdb'}",
    "parquet": lambda folder: f"parquet:///{folder / 'lake'}",
}


@pytest.fixture(params=sorted(URLS))
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    return lambda: open_store(URLS[request.param](tmp_path))


@pytest.mark.parametrize("seed", range(12))
def test_any_history_gives_the_rows_of_the_highest_versions(opened: Open, seed: int) -> None:
    store_contract.any_history(opened, seed)


def test_refusals_tables_made_anew_and_progress(opened: Open) -> None:
    store_contract.the_rest(opened)
