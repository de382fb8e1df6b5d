"""Words of the command line: a short option has one meaning in all commands, every command shows an example,
and a renamed command names its new word.
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from hub.cli import COMMANDS, RENAMED, app, load_command, main
from hub.cli.terminal.versions import hub_version

from .written import trouble

# The short options that people know from other programs, and their only meanings.
LETTERS = {
    "-o": "--output",
    "-n": "--limit",
    "-w": "--watch",
    "-f": "--file",
    "-p": "--partition",
    "-t": "--topic",
}


def walk(path: tuple[str, ...], command: Any) -> Iterator[tuple[str, Any]]:
    """Yield every command below and including ``command`` with the words that call it."""
    yield " ".join(path), command
    for name, below in getattr(command, "commands", {}).items():
        yield from walk((*path, name), below)


EVERY = dict(each for name in COMMANDS for each in walk((name,), load_command(name)))


def options() -> Iterator[tuple[str, Any]]:
    """Yield (command, option) for each option that a person may write."""
    for path, command in EVERY.items():
        for parameter in command.params:
            if parameter.param_type_name == "option":
                yield path, parameter


def long_name(option: Any) -> str:
    return next(name for name in option.opts if name.startswith("--"))


def test_a_short_option_stands_for_one_option() -> None:
    meanings: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for path, option in options():
        for name in (*option.opts, *option.secondary_opts):
            if not name.startswith("--"):
                meanings[name][f"{long_name(option)}{' (flag)' if option.is_flag else ''}"].append(path)
    assert {letter: dict(found) for letter, found in meanings.items() if len(found) > 1} == {}
    assert {letter: next(iter(meanings[letter])).split()[0] for letter in LETTERS} == LETTERS


def test_a_common_option_has_its_letter_in_every_command() -> None:
    letters = {name: letter for letter, name in LETTERS.items()}
    missing = [
        f"{path} {long_name(option)}"
        for path, option in options()
        if letters.get(long_name(option), option.opts[0]) not in option.opts
    ]
    assert missing == []


@pytest.mark.parametrize("path", EVERY)
def test_a_command_has_a_help_text_with_an_example_that_works(path: str) -> None:
    command = EVERY[path]
    summary, found, examples = f"{command.help or ''}\n{command.epilog or ''}".partition("Example")
    assert summary.strip(), "no sentence says what the command does"
    shown = re.findall(r"hub [^\n;`]*?(?=\s{3}|[;`\n]|$)", examples)
    assert found and any(each.startswith(f"hub {path}") for each in shown), examples
    assert [each for each in shown if trouble(each)] == []


@pytest.mark.parametrize("old", RENAMED)
def test_a_renamed_command_names_its_new_word(old: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*old.split(), "some", "arguments"])
    assert ended.value.code == 2
    assert f"`hub {old}` is now `hub {RENAMED[old]}`" in " ".join(capsys.readouterr().err.split())
    assert RENAMED[old] in EVERY and old not in EVERY


def test_the_version_is_printed() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout) == (0, f"hub {hub_version()}\n")


def test_doctor_names_the_versions_of_what_the_hub_stands_on(tmp_path: Any) -> None:
    from hub.cli.platform.doctor import CHECKS
    from hub.config import Settings

    found = CHECKS["versions"](Settings(home=tmp_path)).found
    python = f"Python {sys.version.split()[0]}"
    assert found.startswith(f"hub {hub_version()}, {python}, Spark 4.") and ", Kafka 4." in found
