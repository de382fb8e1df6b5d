"""[shell] Folds of changelogs, read on a slice at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from hub.errors import HubError, PeerError
from hub.log import DAY_MS, Log, Reader, tombstones_kept_ms
from hub.materializers.changelog.row_decoder import RowDecoder, SchemaTexts
from hub.materializers.stores.stored_row import Digester, RowShaper
from hub.materializers.types.avro_types import AvroType
from hub.materializers.verification.changelog_fold import ChangelogFold, RowHasher
from hub.record import Positions

_RECORDS = 2_000
_SILENCE_S = 30.0
# Folds that are open at the same time; each one takes some memory.
_MOST_OPEN = 16


@dataclass
class FollowedChangelog:
    """A changelog that is read continuously."""

    fold: ChangelogFold
    hasher: RowHasher
    begun: Positions
    kept_ms: int


@dataclass
class ChangelogFolds:
    """Folds of changelogs, read on from where they are. ``folder`` has their files.

    ``worked``: called with the CPU seconds of each piece of reading, and whether the reading has a deadline.
    """

    cluster: Log
    schemas: SchemaTexts
    folder: Path
    now_ms: Callable[[], int]
    stopped: Callable[[], bool]
    worked: Callable[[float, bool], None]
    open: dict[str, FollowedChangelog] = field(default_factory=dict)
    reader: Reader | None = None

    def close(self) -> None:
        for each in self.open.values():
            each.fold.close()
        self.open.clear()
        self.close_reader()

    def close_one(self, changelog: str) -> None:
        """Close the fold of a changelog, and the reader."""
        self.close_reader()
        if (known := self.open.pop(changelog, None)) is not None:
            known.fold.close()

    def close_reader(self) -> None:
        if self.reader is not None:
            with suppress(HubError):
                self.reader.close()
            self.reader = None

    def get(self, changelog: str, identity: str, types: Mapping[str, AvroType]) -> FollowedChangelog:
        """Return the fold of a changelog, rebuilt if it is of another log or was not read for too long."""
        begin = self.cluster.beginning_offsets([changelog])
        followed_changelog = self.open.pop(changelog, None)
        if followed_changelog is not None and followed_changelog.fold.identity != identity:
            followed_changelog.fold.close()
            followed_changelog = None
        if followed_changelog is None:
            self.tidy()
            hasher = RowHasher(Digester(types), RowShaper(types), RowDecoder(self.schemas))
            file = ChangelogFold(self.folder / f"{changelog}.db", identity)
            followed_changelog = FollowedChangelog(
                file, hasher, begin, tombstones_kept_ms(self.cluster, changelog) or DAY_MS
            )
        at, old_ms = followed_changelog.fold.positions, self.now_ms() - followed_changelog.fold.current_ms
        if (
            at is not None
            and followed_changelog.fold.current_ms
            and (old_ms > followed_changelog.kept_ms // 2 or not at.covers(begin))
        ):
            followed_changelog.fold.clear()
            followed_changelog = replace(
                followed_changelog, fold=ChangelogFold(followed_changelog.fold.path, identity)
            )
        self.open[changelog] = followed_changelog  # the last entry is the one used last
        while len(self.open) > _MOST_OPEN:
            self.open.pop(next(iter(self.open))).fold.close()
        return replace(followed_changelog, begun=begin)

    def tidy(self) -> None:
        """Delete the files of changelogs that no longer exist, which have keys of rows. Raises PeerError."""
        paths = list(self.folder.glob("*.db"))
        topics = self.cluster.described(path.stem for path in paths)
        for path in paths:
            if path.stem not in topics:
                if (known := self.open.pop(path.stem, None)) is not None:
                    known.fold.close()
                for each in self.folder.glob(f"{path.name}*"):
                    each.unlink(missing_ok=True)

    def clear(self, changelog: str) -> None:
        followed_changelog = self.open.pop(changelog, None)
        if followed_changelog is not None:
            followed_changelog.fold.clear()

    def read(self, fold: FollowedChangelog, end: Positions, deadline_s: float | None) -> bool:
        """Read the fold up to ``end`` and return whether it got there; it may not with a deadline. Raises
        PeerError.
        """
        at = fold.begun.advanced(fold.fold.positions or Positions())
        if at.covers(end):
            return True
        if self.reader is None:
            self.reader = self.cluster.reader()
        reader, received_s = self.reader, time.monotonic()
        left = _left(at, end)
        reader.assign(left)
        try:
            while len(left):
                if self.stopped() or (deadline_s is not None and time.monotonic() > deadline_s):
                    return False
                began_s = time.thread_time()
                records = reader.poll(_RECORDS, 0.5)
                reached = Positions({tp: min(offset, end.get(tp)) for tp, offset in reader.position()})
                moved = not at.covers(reached)
                at = at.advanced(reached)
                mine = [each for each in records if each.offset < end.get(each.topic_partition)]
                fold.fold.take(fold.hasher.rows(mine), at)
                before, left = left, _left(at, end)
                if len(left) < len(before):  # a partition at its end need not be read further
                    reader.assign(left)
                now_s = time.monotonic()
                if moved:
                    received_s = now_s
                elif now_s - received_s > _SILENCE_S:
                    raise PeerError(
                        f"the changelog cannot be read on from {at}", hint="is Kafka there? hub doctor"
                    )
                self.worked(time.thread_time() - began_s, deadline_s is not None)
        finally:
            reader.assign(Positions())  # an idle reader fetches nothing
        return True


def _left(at: Positions, end: Positions) -> Positions:
    """Return the positions of the partitions that are not at their end yet."""
    return Positions({tp: at.get(tp) for tp, offset in end if at.get(tp) < offset})
