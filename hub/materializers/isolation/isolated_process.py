"""[edge] The process of one isolated view."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from hub.config import Settings
from hub.materializers.definition.declared import is_transaction_group
from hub.materializers.isolation import policy as isolation
from hub.materializers.isolation.policy import IsolatedVersion
from hub.materializers.isolation.processes import SharedProcess
from hub.materializers.isolation.thread_marks import Key, out_of_memory_kills, table_of_key
from hub.materializers.progress.records import ViewState
from hub.materializers.snapshot_groups.members import RunningVersion
from hub.materializers.versions.version_log import VersionLog
from hub.times import epoch_ms


class IsolatedProcess:
    """The process of one isolated version, with the same interface as ``SharedProcess``."""

    def __init__(self, settings: Settings, table: str, decides: bool) -> None:
        shared = SharedProcess(settings)
        shared.read()
        self.marks = shared.marks
        self.table = table
        self.entry = shared.journal.isolated.get(table) or IsolatedVersion(
            isolation.START, "it was isolated", epoch_ms()
        )
        self._decides = decides
        self._kills = out_of_memory_kills()

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def died(self, code: int) -> None:
        """Note for the shared process how Spark's JVM ended."""
        self._note(f"it {isolation.death_of(code, out_of_memory_kills() - self._kills).cause}")

    def stalled(self, table: str, cause: str) -> None:
        self._note(f"its batch {cause}")

    def allows(self, table: str) -> bool:
        return table == self.table

    def step(self, keys: Sequence[Key], ledger: VersionLog) -> list[Key]:
        ledger.decides = self._decides
        ledger.own = frozenset([self.table.partition("@")[0]] if self._decides else [])
        return [key for key in keys if table_of_key(key) == self.table]

    def take_states(self) -> list[ViewState]:
        return []

    def in_groups(self, runners: Sequence[RunningVersion]) -> list[RunningVersion]:
        """Return the version if it is a group of its own: no other process moves it."""
        return [each for each in runners if each.group is not None and is_transaction_group(each.group)]

    def reads(self) -> frozenset[str]:
        return frozenset()

    def _note(self, why: str) -> None:
        with contextlib.suppress(OSError):
            (self.marks.folder / f"{self.table}.ended").write_text(why)
