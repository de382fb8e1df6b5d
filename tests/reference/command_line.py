"""The commands of `hub`, walked as Typer has them."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from hub.cli import COMMANDS, app

from .text import noted_table, prose, sentence

_OF_ALL = ("help", "install_completion", "show_completion")
_INTRO = """# Command line

Every command takes `--help`. Data goes to standard output, everything else to standard error. `-o json` prints JSON for
programs. `hub --install-completion` adds completion to your shell. Exit codes: 0 success, 1 an [error](errors.md), 2 a wrong command line, 141 a closed pipe.
"""  # noqa: E501


def page() -> str:
    """Return the page."""
    lines = [_INTRO]
    root: Any = typer.main.get_command(app)
    context = root.make_context("hub", [], resilient_parsing=True)
    lines += ["## hub", "", *_parameters(root, context)]
    for name in sorted(name for name, (_, text) in COMMANDS.items() if text):
        _, command, _ = root.resolve_command(context, [name])
        lines += _command(command, f"hub {name}", context)
    return "\n".join(lines)


def _command(command: Any, path: str, above: Any) -> Iterator[str]:
    if command.hidden:
        return
    context = type(above)(command, info_name=path.rpartition(" ")[2], parent=above)
    yield from ("#" * min(4, path.count(" ") + 1) + f" {path}", "")
    if command.help:
        text = inspect.cleandoc(command.help).replace("\b\n", "")
        yield from (prose(sentence(part)) + "\n" for part in text.split("\n\n") if part.strip())
    usage = " ".join(command.collect_usage_pieces(context))
    yield f"```console\n{path} {usage}".rstrip() + "\n```\n"
    yield from _parameters(command, context)
    for name in getattr(command, "commands", {}):
        yield from _command(command.commands[name], f"{path} {name}", context)


def _parameters(command: Any, context: Any) -> Iterator[str]:
    yield from noted_table(
        ("parameter", "type", "default", "meaning"),
        [
            _row(each, context)
            for each in command.params
            if not getattr(each, "hidden", False) and each.name not in _OF_ALL
        ],
    )


def _row(parameter: Any, context: Any) -> tuple[str, str, str, str]:
    option = parameter.param_type_name == "option"
    names = [*parameter.opts, *parameter.secondary_opts] if option else [parameter.name.upper()]
    flag = getattr(parameter, "is_flag", False)
    kind = "flag" if flag else parameter.display_type(context).strip("<>").replace("|", " or ")
    repeated = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    default = parameter.default
    shown = "required" if parameter.required else _shown(default, flag)
    return (
        ", ".join(f"`{name}`" for name in names),
        kind + (", repeatable" if repeated else ""),
        shown,
        prose(sentence(getattr(parameter, "help", None) or "")),
    )


def _shown(default: Any, flag: bool) -> str:
    if default is None or callable(default) or default in ((), [], "") or (flag and not default):
        return ""
    if type(default).__name__ == "Sentinel" or "UNSET" in repr(default):
        return ""
    return f"`{getattr(default, 'value', default)}`"
