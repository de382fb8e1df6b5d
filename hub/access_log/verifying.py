"""[core] Check the chains of the access log: (records in order) → problems, each with its offset.

The beginning of a chain may be gone by retention, if the topic no longer begins at offset 0. Such a chain is
linked from its first record on, and vouched for by its first signed checkpoint.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Literal

from hub.access_log.actions import LoggedAction
from hub.access_log.chain import SIGNED, LogPlace, hash_of, place_of, signature_holds
from hub.access_log.entry import StoredEntry, decode
from hub.errors import HubFault

# Hashes by offset, for the links between chains. A link further back is not checked.
_MOST_HASHES = 200_000
MOST_PROBLEMS = 1_000

ProblemKind = Literal["removed", "changed", "moved", "signature", "unreadable", "key"]


@dataclass(frozen=True, slots=True)
class LogProblem:
    """A record that is not as it was written. ``key``: the signer is not trusted, which proves nothing."""

    offset: int
    kind: ProblemKind
    message: str


@dataclass
class CheckedChain:
    """State of a chain so far. ``unsigned``: records after its last trusted signature."""

    id: str
    next: int
    last: LogPlace
    first_offset: int
    cut: bool = False
    vouched: bool = False
    closed: bool = False
    unsigned: int = 0
    records: int = 0


@dataclass
class LogCheck:
    """The check of one topic. ``begin``: its first offset. ``trusted``: public keys in hex."""

    begin: int
    trusted: Collection[str]
    problems: list[LogProblem] = field(default_factory=list)
    chains: dict[str, CheckedChain] = field(default_factory=dict)
    records: int = 0
    head: LogPlace | None = None
    _hashes: OrderedDict[int, str] = field(default_factory=OrderedDict)
    _keys: set[str] = field(default_factory=set)

    def apply(self, offset: int, value: bytes | None) -> None:
        """Take the next record of the topic into account."""
        hashed = hash_of(value or b"")
        self._remember(offset, hashed)
        self.records, self.head = self.records + 1, LogPlace(offset, hashed)
        try:
            stored = decode(value, offset)
        except HubFault as error:
            self._found(offset, "unreadable", error.message)
            return
        chain = self._linked(stored, hashed)
        chain.records += 1
        if stored.entry.action in SIGNED:
            self._signed(stored, chain)
        else:
            chain.unsigned += 1

    def require(self, place: LogPlace) -> None:
        """Check that the topic holds this record at this place, as an earlier check printed it."""
        if place.offset >= self.begin and self._hashes.get(place.offset) != place.hash:
            self._found(place.offset, "changed", f"the record at offset {place.offset} is not the noted one")

    @property
    def is_whole(self) -> bool | None:
        """Return whether all records are as they were written; None: unknown, as a signer is not trusted."""
        if any(each.kind != "key" for each in self.problems):
            return False
        return None if self.problems else True

    def _linked(self, stored: StoredEntry, hashed: str) -> CheckedChain:
        """Check the link to the record before it in the chain, and move the chain on."""
        offset, place = stored.offset, LogPlace(stored.offset, hashed)
        chain = self.chains.get(stored.chain)
        if chain is None:
            chain = CheckedChain(stored.chain, stored.sequence + 1, place, offset)
            self.chains[stored.chain] = chain
            if stored.sequence:
                chain.cut = self.begin > 0
                if not chain.cut:
                    self._removed(offset, stored.chain, 0, stored.sequence)
            return chain
        if stored.sequence < chain.next:
            self._found(
                offset, "moved", f"record {stored.sequence} of chain {stored.chain} is late or repeated"
            )
            return chain
        if stored.sequence > chain.next:
            self._removed(offset, stored.chain, chain.next, stored.sequence)
        elif stored.previous != chain.last.hash:
            at = chain.last.offset
            self._found(at, "changed", f"the record at offset {at} is not the one that was written")
        if chain.closed:
            self._found(offset, "moved", f"chain {stored.chain} goes on after its end")
        chain.next, chain.last = stored.sequence + 1, place
        return chain

    def _signed(self, stored: StoredEntry, chain: CheckedChain) -> None:
        detail = stored.entry.detail
        if not signature_holds(stored, detail):
            self._found(stored.offset, "signature", "the signature of the checkpoint is wrong")
            return
        key = str(detail.get("key"))
        if key in self.trusted:
            chain.vouched, chain.unsigned = True, 0
        elif key not in self._keys:
            self._keys.add(key)
            self._found(stored.offset, "key", f"chain {chain.id} is signed by an unknown key, {key}")
        chain.closed = stored.entry.action is LoggedAction.log_close
        after = place_of(str(detail.get("after", "")))
        if after is not None and stored.entry.action is LoggedAction.log_open:
            self._held(stored, after)

    def _held(self, stored: StoredEntry, after: LogPlace) -> None:
        """Check the record that was the topic's last when the chain began."""
        if after.offset < max(self.begin, next(iter(self._hashes), 0)):
            return
        found = self._hashes.get(after.offset)
        if found == after.hash:
            if stored.entry.detail.get("key") in self.trusted:  # signed for, up to there
                for each in self.chains.values():
                    if each.last == after:
                        each.unsigned, each.vouched = 0, True
            return
        what = "removed" if found is None else "changed"
        self._found(
            after.offset,
            "removed" if found is None else "changed",
            f"the record at offset {after.offset} was {what} or moved after chain {stored.chain} began",
        )

    def _removed(self, offset: int, chain: str, first: int, end: int) -> None:
        count = end - first
        self._found(
            offset,
            "removed",
            f"before offset {offset}, {count} record{'s' if count > 1 else ''} of chain {chain} "
            f"{'are' if count > 1 else 'is'} missing ({first} to {end - 1})",
        )

    def _found(self, offset: int, kind: ProblemKind, message: str) -> None:
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(LogProblem(offset, kind, message))

    def _remember(self, offset: int, hashed: str) -> None:
        self._hashes[offset] = hashed
        if len(self._hashes) > _MOST_HASHES:
            self._hashes.popitem(last=False)
