"""Shell completion, as the scripts of ``--show-completion`` ask for it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.processes

HUB = [sys.executable, "-m", "hub.cli"]


def completed(shell: str, words: str) -> list[str]:
    asks = (
        {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        if shell == "bash"
        else {"_TYPER_COMPLETE_ARGS": words}
    )
    told = {**os.environ, "_HUB_COMPLETE": f"complete_{shell}", **asks}
    return subprocess.run(HUB, env=told, capture_output=True, text=True, check=True).stdout.split()


def test_commands_their_commands_and_options_are_completed() -> None:
    assert {"topic", "top"} <= set(completed("bash", "hub to"))
    assert completed("bash", "hub topic dr") == ["drift"]
    assert completed("bash", "hub topic drift --un") == ["--under"]
    assert "drift" in " ".join(completed("zsh", "hub topic dr"))


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_script_is_shown(shell: str) -> None:
    # typer's findings about the parent process are set here.
    told = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    asked = [*HUB, "--show-completion", shell]
    done = subprocess.run(asked, env=told, capture_output=True, text=True, check=True)
    assert f"complete_{shell}" in done.stdout
