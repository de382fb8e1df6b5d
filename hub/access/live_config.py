"""[shell] access.yaml, reloaded when it changes.

An invalid or missing file keeps the previous grants; without any, nothing is granted. Access never becomes
open by an error. A grant with ``until`` ends at its time: the rules are then made again from the same file.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from hub.access.access_yaml import ACCESS_FILE, AccessFile, load_access, with_admin
from hub.access.decide import ANONYMOUS, AccessPolicy, Principal, decide
from hub.access.masking.decision import MaskDecision, MaskPolicy
from hub.access.masking.facts import MaskSources
from hub.caller import AccessDecision, Action, Caller, Resource
from hub.errors import ConfigError
from hub.files import Stamp, stamp_if_there
from hub.masking.shape import Visibility
from hub.quotas.ledger import Ledger
from hub.quotas.policy import NO_QUOTAS, QuotaPolicy
from hub.times import epoch_ms
from hub.yaml import is_there
from hub.yaml_nodes import UnreadableFile

log = logging.getLogger(__name__)

_MOST_REMEMBERED = 100_000  # limit of cached decisions; the same names are requested again and again
_LONGEST_REMEMBERED = (
    # Names longer than any in Kafka are not cached, so that requests cannot fill the memory. In characters.
    300
)


@dataclass(frozen=True)
class AccessRules:
    """One version of the file between two ends of grants, with cached decisions. ``tokens`` maps hashes,
    ``certificates`` their names, to users. ``ends_ms``: the next end of a grant; None: there is none."""

    file: AccessFile
    policy: AccessPolicy
    tokens: Mapping[str, str]
    certificates: Mapping[str, str] = field(default_factory=dict)
    masks: MaskPolicy = field(default_factory=MaskPolicy)
    mask_sources: MaskSources = field(default_factory=MaskSources, repr=False, compare=False)
    quotas: QuotaPolicy = NO_QUOTAS
    ends_ms: int | None = None
    _known: dict[tuple[Principal, Action, Resource], AccessDecision] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(
        file: AccessFile, mask_sources: MaskSources | None = None, now_ms: int | None = None
    ) -> AccessRules:
        """Return the rules as of a time; None: now."""
        at_ms = epoch_ms() if now_ms is None else now_ms
        return AccessRules(
            file,
            file.policy(at_ms),
            {node.token: name for name, node in file.tokens.items()},
            {each: name for name, node in file.users.items() for each in node.certificates},
            file.mask_policy(),
            mask_sources or MaskSources(),
            file.quota_policy(),
            next((each for each in file.ends_ms() if each > at_ms), None),
        )

    def decide(self, who: Principal, action: Action, what: Resource) -> AccessDecision:
        key = (who, action, what)
        decision = self._known.get(key)
        if decision is None:
            decision = decide(self.policy, who, action, what)
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            if len(what.name) <= _LONGEST_REMEMBERED:
                self._known[key] = decision
        return decision

    def caller(self, who: Principal, *, way: str = "") -> Caller:
        """Return the caller as the rest of the hub sees it."""
        return Caller(
            who.name,
            who.groups,
            lambda action, what: self.decide(who, action, what),
            way=way,
            for_others=who.kind == "own",
            is_person=who.kind in ("user", "proxy", "oidc") and not who.by_token,
            shape=lambda what: self.shape(who, what),
            is_masked=bool(self.masks.rules) and who.kind != "own",
        )

    def shape(self, who: Principal, what: Resource) -> Visibility:
        """Return what the principal sees of a topic or view. Raises PeerError while that is not known."""
        sources = self.mask_sources
        return MaskDecision(self.masks, self.policy, who, sources.require_facts(), sources.secret).shape(what)

    def sees_the_same(self, now: Principal, then: Principal, before: AccessRules) -> bool:
        """Return whether a caller sees the same: ``now`` by these rules, ``then`` by those of ``before``."""
        if not self.masks.rules and not before.masks.rules:
            return True
        return (self.masks, self.policy, now.groups) == (before.masks, before.policy, then.groups)

    def same_principal(self, who: Principal, then: AccessRules) -> Principal | None:
        """Return a principal that signed in under ``then`` with its groups of now; None if its secret has
        changed.
        """
        if who.kind == "token":
            old, new = then.file.tokens.get(who.name), self.file.tokens.get(who.name)
            if old is None or new is None or old.token != new.token:
                return None
            return Principal(who.name, "token", frozenset(new.groups))
        before, after = then.file.users.get(who.name), self.file.users.get(who.name)
        if who.kind in ("user", "proxy"):
            if who.kind == "user" and (before is None or after is None or before.secrets != after.secrets):
                return None
            return replace(self.user(who.name, who.kind), limits=who.limits, by_token=who.by_token)
        if who.kind == "oidc":
            # The groups of its token were read by the old section and the old list of groups.
            same = then.file.oidc == self.file.oidc and then.file.groups.keys() == self.file.groups.keys()
            if not same or before != after or self.belongs_to_others(who.name):
                return None
        return who

    def user(self, name: str, kind: str = "user") -> Principal:
        """Return the principal of this name with its groups from the file; anonymous for the empty name."""
        if not name:
            return ANONYMOUS
        user_node = self.file.users.get(name)
        return Principal(name, kind, frozenset(user_node.groups if user_node else ()))

    def oidc_user(self, name: str, groups: frozenset[str]) -> Principal:
        """Return the principal of a provider's token: its groups, and those of the user of its name."""
        return Principal(name, "oidc", groups | self.user(name).groups)

    def belongs_to_others(self, name: str) -> bool:
        """Return whether the name belongs to someone who proves it by a password, token or certificate of the
        file."""
        user = self.file.users.get(name)
        return name in self.file.tokens or (user is not None and user.secrets != (None, ()))


class LiveAccess:
    """access.yaml of one project folder, and the setting ``admin_token``. Thread safe. ``rules`` None: access
    control is off.
    """

    def __init__(self, project: Path, *, required: bool = False, admin_token: str | None = None) -> None:
        self.path = project / ACCESS_FILE
        self.error: ConfigError | None = None
        self._rules: AccessRules | None = None
        self._required, self._admin_token = required, admin_token
        self._by_token_alone = False  # there was no access.yaml so far
        self.mask_sources = MaskSources()
        self.ledger = Ledger()  # use since the server's start; a changed file keeps it
        self._read: Stamp | None = None
        self._lock = threading.Lock()
        self.refresh()

    @property
    def rules(self) -> AccessRules | None:
        """Return the rules of this moment: without the grants that have ended."""
        rules = self._rules
        if rules is None or rules.ends_ms is None or epoch_ms() < rules.ends_ms:
            return rules
        with self._lock:
            if self._rules is rules:
                log.info("a grant of %s has ended", self.path)
                self._rules = AccessRules.of(rules.file, rules.mask_sources)
            return self._rules

    def refresh(self) -> None:
        """Reload the file if it changed. Blocks. Errors of the file are stored in ``error``, not raised."""
        with self._lock:
            self._refresh()

    def _refresh(self) -> None:
        stamp = stamp_if_there(self.path)  # a file that cannot be looked at keeps access control on
        if stamp is None:
            self._gone()
            return
        if stamp == self._read:
            return
        try:
            made = self._rules_of(load_access(self.path))
        except UnreadableFile as error:
            self._failed(ConfigError(error.message, hint=error.hint, code="HUB-1712"))
            return  # retry: permissions are not part of the stamp
        except ConfigError as error:
            self._failed(error)
        else:
            log.info("access is controlled by %s", self.path)
            self._rules, self.error, self._by_token_alone = made, None, False
        self._read = stamp

    def _gone(self) -> None:
        self._read = None
        try:
            is_there(self.path)
        except ConfigError as error:  # named access.yml: its author believes that it applies
            self._failed(error)
            return
        if self._rules is None and self._admin_token is not None:
            log.warning("only admin_token gets in: %s does not exist", self.path)
            self._rules = self._rules_of(AccessFile())
            self._by_token_alone = True
        if self._by_token_alone or (self._rules is None and not self._required):
            return
        if self.error is None or self.error.code != "HUB-1713":
            self._failed(
                ConfigError(
                    f'"{self.path}" does not exist',
                    hint="restore the file; to run without access control, restart the hub"
                    if self._rules is not None
                    else "write it (docs/how-to/control-access.md), or set require_access to false",
                    code="HUB-1713",
                )
            )

    def _failed(self, error: ConfigError) -> None:
        is_repeated = str(error) == str(self.error)
        self.error = error
        if is_repeated:
            return
        if self._rules is None:
            self._rules = self._rules_of(AccessFile())
            log.error("access is refused to everybody: access.yaml cannot be used: %s", error)
        else:
            log.error("the previous access.yaml stays in force: the new one cannot be used: %s", error)

    def _rules_of(self, file: AccessFile) -> AccessRules:
        return AccessRules.of(with_admin(file, self._admin_token), self.mask_sources)
