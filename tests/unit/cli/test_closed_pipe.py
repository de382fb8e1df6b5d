"""Nobody reads on: ``hub topic tree | head -1``."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

EXAMPLE = Path(__file__).parents[3] / "examples" / "customer-360"


def run(*arguments: str, also_errors: bool = False) -> tuple[int, str]:
    """Exit code and standard error of a command whose output is a pipe that nobody reads."""
    read, write = os.pipe()
    os.close(read)
    # As a user has it: what is printed waits in a buffer, and Python writes it when it ends.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "hub.cli", *arguments],
            env={**environment, "HUB_PROJECT": str(EXAMPLE)},
            stdin=subprocess.DEVNULL,
            stdout=write,
            stderr=write if also_errors else subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        os.close(write)
    return done.returncode, done.stderr or ""


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("canary", "view"),  # a print, which waits in a buffer
        ("topic", "tree"),  # rich, which makes a failure of its own of it
        ("topic", "tree", "-o", "json"),
        ("alert", "rules", "-o", "grafana"),  # more than a buffer takes
    ],
)
def test_a_pipe_that_is_closed_ends_a_command_as_it_does_any_other(arguments: tuple[str, ...]) -> None:
    assert run(*arguments) == (141, "")


def test_where_errors_go_into_the_pipe_too_nothing_is_left_to_complain_to() -> None:
    assert run("topic", "tree", "-f", "nowhere.yaml", also_errors=True) == (141, "")


def test_what_has_nothing_to_print_ends_as_ever() -> None:
    code, said = run("topic", "tree", "-f", "nowhere.yaml")
    assert code == 1 and 'file "nowhere.yaml" does not exist' in said
    assert run("topics")[0] == 2
