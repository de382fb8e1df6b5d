"""[shell] Tokens that people make for their own programs: ``tokens.json`` in the home, shared by all servers
of it.

A token acts as its owner, within its own grants: what it may do is what both may do, at the time of the
request. So it ends with its owner, and is never worth more. The file (0600) has hashes, never tokens.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from hub.access.access_yaml import Grants
from hub.access.decide import Grant
from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.files import Stamp, stamp_of
from hub.formats.fields import known_fields

log = logging.getLogger(__name__)

FILE = "tokens.json"
MOST_OF_OWNER, MOST_DAYS = 50, 366
USED_EVERY_S = 60.0  # precision of last_used_at_s
_GRANT = re.compile(r"(read|write|operate|admin):(?:(hub)|(view:)?(\S+))")
_GRANTS: TypeAdapter[Grants] = TypeAdapter(Grants)


@dataclass(frozen=True, slots=True)
class PersonalToken:
    """A token without its secret. Times are epoch seconds; ``grants``: as in access.yaml, empty for all of
    the owner's; ``last_used_at_s`` None: not used yet, else exact to a minute.
    """

    id: str
    name: str
    owner: str
    hash: str
    grants: tuple[dict[str, object], ...]
    created_at_s: int
    expires_at_s: int
    last_used_at_s: int | None = None

    def limits(self) -> tuple[Grant, ...] | None:
        """Return the grants that bound the token; None: those of its owner alone."""
        return tuple(each.grant() for each in checked_grants(self.grants)) if self.grants else None


def checked_grants(grants: object) -> Grants:
    """Return the grants of a new token. Raises CallerError."""
    try:
        grant_nodes = _GRANTS.validate_python(grants)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(step) for step in first["loc"])
        raise CallerError(f"grants: {place}: {first['msg']}", code="HUB-1707") from None
    if any(each.until is not None for each in grant_nodes):
        raise CallerError(
            "grants: the grants of a token have no `until`",
            hint="the token itself ends: expires_days",
            code="HUB-1707",
        )
    return grant_nodes


def grant_of(text: str) -> dict[str, object]:
    """Parse a grant of the command line and the page. Raises CallerError.

    >>> grant_of("read:shop.**"), grant_of("read:view:customers")
    ({'role': 'read', 'topics': ['shop.**']}, {'role': 'read', 'views': ['customers']})
    >>> grant_of("read:hub")
    {'role': 'read', 'hub': True}
    """
    match = _GRANT.fullmatch(text)
    if match is None:
        raise CallerError(
            f'"{text[:100]}" is not a grant',
            hint="write ROLE:TOPICS, ROLE:view:NAME or ROLE:hub, such as read:shop.**",
            code="HUB-1718",
        )
    role, hub, view, name = match.groups()
    if hub:
        return {"role": role, "hub": True}
    return {"role": role, "views" if view else "topics": [name]}


def shown_grants(grants: Iterable[Mapping[str, Any]]) -> str:
    """Return the grants of a token in words."""
    found = []
    for each in grants:
        over = [*each.get("topics", ()), *(f"view {view}" for view in each.get("views", ()))]
        found.append(f"{each['role']} {', '.join([*over, *(['the hub'] if each.get('hub') else [])])}")
    return "; ".join(found) or "all of the owner's"


class PersonalTokens:
    """The tokens of one home. Thread safe. An unreadable file keeps the known ones."""

    def __init__(self, home: Path) -> None:
        self._path = home / FILE
        self._lock = threading.Lock()
        self._read: Stamp | None = None
        self._by_hash: dict[str, PersonalToken] = {}
        self._unreadable: str | None = None  # why the file, as it is now, cannot be read
        # Entries as in the file, by id: fields of a newer release are written back.
        self._entries: dict[str, dict[str, Any]] = {}
        self._used: dict[str, int] = {}

    def find(self, hash: str, now_s: float) -> PersonalToken | None:
        """Return the token with this hash if it has not expired, and note its use."""
        with self._lock:
            self._refresh()
            personal_token = self._by_hash.get(hash)
            if personal_token is None or now_s >= personal_token.expires_at_s:
                return None
            self._note_use(personal_token, int(now_s))
            return personal_token

    def holds(self, id: str) -> bool:
        """Return False if the token was revoked since."""
        with self._lock:
            self._refresh()
            return any(each.id == id for each in self._by_hash.values())

    def all(self) -> list[PersonalToken]:
        """Return all tokens, expired ones too, by owner and name."""
        with self._lock:
            self._refresh()
            personal_tokens = sorted(self._by_hash.values(), key=lambda each: (each.owner, each.name))
            return [
                replace(each, last_used_at_s=self._used.get(each.id, each.last_used_at_s))
                for each in personal_tokens
            ]

    def add(self, token: PersonalToken) -> None:
        """Store a new token. Blocks. Raises Conflict, PeerError if the file cannot be written."""

        def added(tokens: list[PersonalToken]) -> list[PersonalToken]:
            own = [each for each in tokens if each.owner == token.owner]
            if any(each.name == token.name for each in own):
                raise Conflict(
                    f'"{token.owner}" has a token "{token.name}"',
                    hint="revoke it first, or choose another name",
                    code="HUB-1708",
                )
            if len(own) >= MOST_OF_OWNER:
                raise Conflict(
                    f'"{token.owner}" has {len(own)} tokens, which is the most',
                    hint="revoke those that are not used: hub access token ls",
                    code="HUB-1708",
                )
            return [*tokens, token]

        self._change(added)

    def revoke(self, id: str) -> None:
        """Remove a token: it ends at once. Blocks. Raises NotFound, PeerError."""

        def removed(tokens: list[PersonalToken]) -> list[PersonalToken]:
            left = [each for each in tokens if each.id != id]
            if len(left) == len(tokens):
                raise NotFound(f'there is no token "{id[:40]}"', hint="hub access token ls", code="HUB-1709")
            return left

        self._change(removed)

    def _note_use(self, token: PersonalToken, now_s: int) -> None:
        before = self._used.get(token.id, token.last_used_at_s) or 0
        if now_s - before < USED_EVERY_S:
            return
        self._used[token.id] = now_s
        try:
            self._rewrite(
                lambda tokens: [
                    replace(each, last_used_at_s=self._used.get(each.id, each.last_used_at_s))
                    for each in tokens
                ]
            )
        except OSError as error:
            log.warning("the use of token %r is not stored: %s", token.name, error)

    def _change(self, change: Callable[[list[PersonalToken]], list[PersonalToken]]) -> None:
        with self._lock:
            try:
                self._rewrite(change)
            except OSError as error:
                raise PeerError(
                    f'"{self._path}" cannot be written: {error.strerror}',
                    hint="make the home folder writable for the hub's account",
                    code="HUB-3076",
                ) from None

    def _rewrite(self, change: Callable[[list[PersonalToken]], list[PersonalToken]]) -> None:
        with _locked(self._path.with_suffix(".lock")):
            self._refresh()
            if self._unreadable is not None:  # its tokens would be lost
                raise OSError(errno.EINVAL, f"it cannot be read: {self._unreadable}")
            tokens = change(list(self._by_hash.values()))
            draft = self._path.with_suffix(".draft")
            draft.touch(0o600)
            with draft.open("w") as handle:
                json.dump([{**self._entries.get(each.id, {}), **asdict(each)} for each in tokens], handle)
                handle.flush()
                os.fsync(handle.fileno())
            draft.replace(self._path)
            self._refresh()

    def _refresh(self) -> None:
        try:
            stamp = stamp_of(self._path)
            if stamp == self._read:
                return
            entries = json.loads(self._path.read_bytes())
            tokens = [_token_of(each) for each in entries]
        except FileNotFoundError:
            self._by_hash, self._entries, self._read, self._unreadable = {}, {}, None, None
            return
        except (OSError, ValueError, TypeError, KeyError) as error:
            self._unreadable = f"{type(error).__name__}: {error}"
            log.error("%s cannot be read; the known tokens remain: %s", self._path, error)
            return
        self._by_hash, self._read, self._unreadable = {each.hash: each for each in tokens}, stamp, None
        self._entries = {each["id"]: each for each in entries}


def _token_of(entry: dict[str, Any]) -> PersonalToken:
    return known_fields(PersonalToken, {**entry, "grants": tuple(entry["grants"])})


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock, so that one server writes at a time."""
    handle = os.open(path, os.O_CREAT | os.O_WRONLY, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)
