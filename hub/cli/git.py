"""[edge] git: extract a folder as of a revision, with limits on files, sizes and time."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

from hub.errors import CallerError, ConfigError

MOST_FILES = 5_000
MOST_BYTES = 1 << 20
TIMEOUT_S = 30.0
_LINK = "120000"


def extract(folder: Path, revision: str, into: Path, suffixes: frozenset[str], names: frozenset[str]) -> int:
    """Write the files of ``folder`` as they were at ``revision`` into ``into``; how many there were.

    Only regular files with one of the suffixes, or of the ``names`` in the folder itself, of at most
    ``MOST_BYTES``; for a link the file of the revision that it leads to, where it leads to one. Raises
    CallerError for a revision that is none, ConfigError for a folder that is in no repository.
    """
    if not folder.is_dir():
        raise ConfigError(
            f'folder "{folder}" does not exist', hint="name the folder of schemas", code="HUB-1106"
        )
    top = Path(_git(folder, "rev-parse", "--show-toplevel").decode().rstrip("\n")).resolve()
    inside = folder.resolve().relative_to(top).as_posix()
    commit = _commit(folder, revision)
    listed = _git(
        top,
        "ls-tree",
        "-r",
        "-z",
        "--long",
        "--full-tree",
        commit,
        *(["--", inside] if inside != "." else []),
    )
    written = 0
    for entry in listed.decode("utf-8", "surrogateescape").split("\0"):
        head, _, name = entry.partition("\t")
        if not head:
            continue
        path = PurePosixPath(name).relative_to(inside)
        if path.suffix not in suffixes and path.as_posix() not in names:
            continue
        mode, _, blob, size = head.split()
        if mode == _LINK:
            blob, size = _followed(top, commit, name)
        elif not mode.startswith("100"):  # a submodule is not a file
            continue
        if not blob or int(size) > MOST_BYTES:
            continue
        written += 1
        if written > MOST_FILES:
            raise CallerError(f'folder "{folder}" has more than {MOST_FILES} schemas at {revision}')
        target = into / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_git(top, "show", blob))
    return written


def _followed(top: Path, commit: str, name: str) -> tuple[str, str]:
    """(blob, size) of the file that a link leads to within the revision;
    ("", "0") when it leads to none there."""
    query = f"{commit}:{name}\n".encode("utf-8", "surrogateescape")
    listing = (
        _git(top, "cat-file", "--batch-check", "--follow-symlinks", given=query) if "\n" not in name else b""
    )
    found = listing.decode("utf-8", "replace").split()
    return (found[0], found[2]) if len(found) == 3 and found[1] == "blob" else ("", "0")


def _commit(folder: Path, revision: str) -> str:
    try:
        return (
            _git(folder, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
            .decode()
            .strip()
        )
    except ConfigError:
        raise CallerError(
            f'"{revision}" is not a revision of the repository',
            hint="name a branch, tag or commit that is fetched: in CI, check out with its "
            "history (fetch-depth: 0)",
        ) from None


def _git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    environment = {**os.environ, "LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            check=False,
            timeout=TIMEOUT_S,
            env=environment,
            input=given,
        )
    except FileNotFoundError:
        raise ConfigError("git is not installed", hint="install git, or use --against FILE") from None
    except subprocess.TimeoutExpired:
        raise CallerError(f"git took longer than {TIMEOUT_S:.0f} s") from None
    if done.returncode:
        stderr = done.stderr.decode(errors="replace").strip().splitlines()
        raise ConfigError(
            f"git: {stderr[0] if stderr else f'exit code {done.returncode}'}",
            hint="is the folder in a git repository?",
        )
    return done.stdout
