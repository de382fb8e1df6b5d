"""[shell] access.yaml as it is now: read again when it changes. A file that cannot be read, or is gone, leaves what held; where
nothing held yet, nothing is granted. It never opens up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hub.access.access_yaml import ACCESS_FILE, AccessFile, load_access
from hub.access.decide import ANONYMOUS, AccessPolicy, Principal, decide
from hub.caller import Action, Caller, Decision, Resource
from hub.errors import ConfigError
from hub.yaml import UnreadableFile, is_there

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 100_000  # decisions; a name is asked for again and again
_LONGEST_REMEMBERED = (
    300  # characters of a name. Kafka has none that are longer: who asks for them is not to fill the memory
)


@dataclass(frozen=True)
class AccessRules:
    """One state of the file, and what it was asked. ``tokens``: names by the lines of their hashes."""

    file: AccessFile
    policy: AccessPolicy
    tokens: Mapping[str, str]
    _known: dict[tuple[Principal, Action, Resource], Decision] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(file: AccessFile) -> AccessRules:
        return AccessRules(file, file.policy(), {node.token: name for name, node in file.tokens.items()})

    def decide(self, who: Principal, action: Action, what: Resource) -> Decision:
        key = (who, action, what)
        found = self._known.get(key)
        if found is None:
            found = decide(self.policy, who, action, what)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            if len(what.name) <= _LONGEST_REMEMBERED:
                self._known[key] = found
        return found

    def caller(self, who: Principal, *, can_leave: bool = False) -> Caller:
        """Who asks, as the rest of the hub knows them."""
        return Caller(
            who.name,
            who.groups,
            lambda action, what: self.decide(who, action, what),
            can_leave=can_leave,
            for_others=who.kind == "own",
        )

    def user(self, name: str, kind: str = "user") -> Principal:
        """Somebody of this name, in the groups that the file says; nobody for the empty name."""
        if not name:
            return ANONYMOUS
        known = self.file.users.get(name)
        return Principal(name, kind, frozenset(known.groups if known else ()))


class LiveAccess:
    """Of one project folder. Thread safe. ``rules`` None: access is not controlled."""

    def __init__(self, project: Path, *, required: bool = False) -> None:
        self.path = project / ACCESS_FILE
        self.error: ConfigError | None = None
        self.rules: AccessRules | None = None
        self._required = required
        self._read: tuple[int, int, int] | None = None
        self._lock = threading.Lock()
        self.refresh()

    def refresh(self) -> None:
        """Read the file when it changed since. Blocks; raises nothing that is the file's fault."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        stamp = self._stamp()
        if stamp is None:
            self._gone()
            return
        if stamp == self._read:
            return
        try:
            made = AccessRules.of(load_access(self.path))
        except UnreadableFile as error:
            self._failed(ConfigError(error.message, hint=error.hint, code="HUB-1712"))
            return  # and tried again: who may read it is not in the stamp
        except ConfigError as error:
            self._failed(error)
        else:
            log.info("access is controlled by %s", self.path)
            self.rules, self.error = made, None
        self._read = stamp

    def _gone(self) -> None:
        self._read = None
        try:
            is_there(self.path)
        except ConfigError as error:  # as access.yml: who wrote it believes that it holds
            self._failed(error)
            return
        if self.rules is None and not self._required:
            return
        if self.error is None or self.error.code != "HUB-1713":
            self._failed(
                ConfigError(
                    f'"{self.path}" does not exist',
                    hint="put it back; without control of access the hub has to be started anew"
                    if self.rules is not None
                    else "write it (docs/access.md), or set require_access to false",
                    code="HUB-1713",
                )
            )

    def _failed(self, error: ConfigError) -> None:
        said = str(error) == str(self.error)
        self.error = error
        if said:
            return
        if self.rules is None:
            self.rules = AccessRules.of(AccessFile())
            log.error("nobody gets in, access.yaml cannot be used: %s", error)
        else:
            log.error("access stays as it was, access.yaml cannot be used: %s", error)

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            return (0, 0, 0)  # it is there and cannot be looked at: that is no reason to open up
        return found.st_mtime_ns, found.st_size, found.st_ino
