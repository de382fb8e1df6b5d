"""[core] The change of events by a function of a script.

The function gets the event and its record, and returns the event as it should be, a list of events, or None
for an event that stays as it is. An empty list drops the event.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from hub.errors import CallerError
from hub.record import Record
from hub.repairs.outcomes import UNCHANGED


@dataclass(frozen=True, slots=True)
class ScriptChange:
    """A change by ``function(event, record)``. ``name``: of the script, for messages."""

    function: Callable[[Any, Record], Any]
    name: str

    def results(self, records: Sequence[Record], events: Sequence[Any]) -> Sequence[Any]:
        """See EventChange."""
        return [self._result(record, event) for record, event in zip(records, events, strict=True)]

    def _result(self, record: Record, event: Any) -> Any:
        try:
            result = self._called(event, record)
        except CallerError as error:
            return error
        if result is None:
            return UNCHANGED
        return list(result) if isinstance(result, list | tuple) else [result]

    def _called(self, event: Any, record: Record) -> Any:
        try:
            return self.function(deepcopy(event), record)
        except Exception as error:  # whatever a function of somebody's own raises
            raise CallerError(f'script "{self.name}": {type(error).__name__}: {error}') from error
