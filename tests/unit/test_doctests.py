"""Run the examples in docstrings; those of the client show calls of a server,
and its own tests make such calls."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import hub

_NOT_RUN = ("hub.client.", "hub.embedded.class_archive_training")
MODULES = sorted(
    each.name
    for each in pkgutil.walk_packages(hub.__path__, "hub.")
    if not each.name.startswith(_NOT_RUN) and not each.name.endswith("__main__")
)


@pytest.mark.parametrize("package", sorted({name.split(".")[1] for name in MODULES}))
def test_examples_in_docstrings_are_true(package: str) -> None:
    """Every example gives what it shows. (A package at a time: most of it is importing.)"""
    found = []
    for name in MODULES:
        if name.split(".")[1] == package:
            result = doctest.testmod(importlib.import_module(name))
            if result.failed:
                found.append(f"{name}: {result.failed} of {result.attempted}")
    assert found == []
