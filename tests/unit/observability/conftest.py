"""Fixtures of the pages' tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser.staged_estate import StagedEstate, estate
from fastapi.testclient import TestClient
from staged_pages import pages_client


@pytest.fixture
def hub() -> StagedEstate:
    return estate()


@pytest.fixture
def client(hub: StagedEstate) -> Iterator[TestClient]:
    with pages_client(hub) as made:
        yield made
