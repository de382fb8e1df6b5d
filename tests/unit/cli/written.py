"""Commands that are written down for people, in pages and documents: does the command line take them?"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import typer

from hub.cli import app

_USAGE: Any = typer.BadParameter.__mro__[1]
# What a person has yet to fill in, and --help.
_NO_TROUBLE = {"MissingParameter", "BadParameter", "NoArgsIsHelpError", "Exit"}
# Named in the documents, and no command: what the ids of events are hashed with.
_ANOTHER = "hub event id"
_ENDS = {"|", "&&", ";", ">", "<", "||", "2>", "&"}


def trouble(command: str) -> str:
    """Why ``hub …`` is none that can be typed; "" when it can, as far as words show it. What a person fills
    in (``TOPIC``) may be of any kind, and arguments that prose leaves out may be missing."""
    try:
        # [--what may be left out], one|of|several
        words = shlex.split(re.sub(r"[\[\]]", "", command), comments=True)[1:]
    except ValueError:
        return ""  # the rest of it is on another line
    ends = [at for at, word in enumerate(words) if word in _ENDS or word.endswith(";")]
    if ends:
        cut = ends[0]
        words = words[:cut] + ([words[cut].rstrip(";")] if words[cut] not in _ENDS else [])
    words = [word.split("|")[0] if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word) else word for word in words]
    less = [word for word in words if word not in ("...", "…")]
    return _refused(command, words) and _refused(command, less)


def _refused(command: str, words: list[str]) -> str:
    # Typer has a Click of its own inside, whose classes have no public names.
    found: Any = typer.main.get_command(app)
    above, name = None, "hub"
    try:
        while hasattr(found, "resolve_command"):
            above = found.make_context(name, list(words), parent=above)
            rest = [*above._protected_args, *above.args]
            if not rest:
                return ""
            name, found, words = found.resolve_command(above, rest)
        found.make_context(name, list(words), parent=above)
    except (_USAGE, typer.Exit) as error:
        return "" if type(error).__name__ in _NO_TROUBLE else f"{command}: {error}"
    return ""


def commands(text: str) -> Iterator[str]:
    """``hub …`` of a document: inline, and lines of its blocks."""
    blocks = re.findall(r"^```(?:bash|sh|text)?\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    rest = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    for line in [*lines, *re.findall(r"`([^`\n]+)`", rest)]:
        found = re.match(r"(?:\$ )?(?:\./run )?(hub [a-z].*)", line)
        if found and found[1] != _ANOTHER:
            # The comment of a command in a block follows it, some spaces away.
            yield re.split(r"\s{3,}|\s+# ", found[1])[0]
