"""[core] Entity plan: a view as expressions over ONE tagged union. The expressions are text for Spark; Spark
is not needed.

Every event of every source becomes a row ``(_k, n_crm, n_orders, i_orders, s_web, …)`` of what the
aggregation keeps of it, one struct each (``UnionColumn``). All structs are null except those of the event's
own source. One aggregation by ``_k`` then holds, per key::

    l_<source>   the latest event:   the greatest n_<source>, struct(order, _at, used columns, where it came from)
    u_<source>   only with unique_by: every i_<source>, struct(order, _at, identity, used columns)
    a_<n>        an aggregate that Spark keeps as it is, of s_<source>: sum, count, max …
    _version     count(*): how many events are folded in; grows with every event, the same on every replay
    _last_at     only with a ttl: the time of the newest event
    _cutoff      only with a ttl: the latest time that an expiry event names (applying/ttl.py)

``_at`` is the event's place in its partition: twice its offset. A replayed event has that of its original
plus one.

Nothing here depends on a clock. A row is expired when an event of the expiry topic says so for a cutoff time,
and no event of the row is later. That compares two maxima, so the result is the same in any order and with
any repetition.

A projection makes the row. A source's column outside an aggregate reads ``l_<source>``. An aggregate over a
``unique_by`` source becomes a fold over the latest entry of each identity. State is one row per key for any
number of sources: no join, no watermark, no Python per event.

Scaling limit: ``u_<source>`` is rewritten with each event of its key, so it suits hundreds of identities per
key (orders of a customer), not millions (clicks of a country).
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from hub.formats.table import VIEW_RULES

# META columns kept of the latest event: the row's provenance.
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp")


# Version of the rules that give a view's file its meaning. It is noted with a version's checkpoint, and the
# version keeps the rules that it began with. 0: an event whose unique_by is null counts nowhere; sums and
# arithmetic of whole numbers wrap; tombstones may leave a row of nulls. 1: such an event counts by itself; a
# result beyond BIGINT is null; a row of nulls is deleted. 2: so is that of `+`, `-` and `*` in a SQL view.
RULES = VIEW_RULES.version


@dataclass(frozen=True, slots=True)
class UnionColumn:
    """A column of the union: a struct with the fields that an aggregate reads of one source's events, else
    null.

    It is computed before the aggregation, which would compute it at each comparison.
    """

    column: str
    # Columns of the event, META, `_at`, and the source's own expressions `_order` and `_unique`.
    fields: tuple[str, ...]
    # If this field is null, the struct is null.
    wants: str | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """Conversion of one source's events to rows of the union. Expressions read ``e_<source>``, the decoded
    event, and META."""

    name: str
    topic: str
    columns: tuple[str, ...]
    key: str
    order: str | None
    order_is_time: bool
    unique: str | None
    where: str | None
    entries: tuple[UnionColumn, ...] = ()
    # Of change events: columns that keep their value while an update leaves it out (an unchanged TOAST
    # value), and columns that an event must have.
    kept: tuple[str, ...] = ()
    whole: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The union column that Spark's own aggregates read."""
        return f"s_{self.name}"

    @property
    def several(self) -> bool:
        """True if the source may read several topics. Places are then comparable only within a topic."""
        return any(mark in self.topic for mark in "*?")

    @property
    def event(self) -> str:
        return f"e_{self.name}"

    @property
    def latest(self) -> str:
        return f"l_{self.name}"


@dataclass(frozen=True, slots=True)
class EntityPlan:
    """A view ready for Spark: three stages of (name, SQL), each reading the stage before."""

    view: str
    sources: tuple[SourcePlan, ...]
    aggregates: tuple[tuple[str, str], ...]
    uniques: tuple[tuple[str, str], ...]
    outputs: tuple[tuple[str, str], ...]
    delete_when: str | None
    # Condition under which tombstones leave a key without a row. Reads the outputs and the latest events.
    absent: str | None = None
    # Only for a view with a ttl: the topic of its expiries, and the condition under which a row is expired.
    expiry: SourcePlan | None = None
    expired: str | None = None


def has_value(column: str) -> str:
    """Return the name of the mark that an event has a column's value; null: it was left out."""
    return f"_has_{column}"


# Not after a dot: there it is a field of the preceding value.
_WORD = re.compile(r"(?<![\w.])\w+")


def steps(outputs: Sequence[tuple[str, str]]) -> Iterable[Mapping[str, str]]:
    """Split the outputs, in order, into as few groups as possible, so that no output reads another one of its
    group.

    Spark analyzes the whole query again for each group. References are found by comparing words, so there may
    be a group more than necessary.
    """
    group: dict[str, str] = {}
    made: set[str] = set()  # names of the group in lower case, as Spark compares names
    for name, sql in outputs:
        if not made.isdisjoint(word.lower() for word in _WORD.findall(sql)):
            yield group
            group, made = {}, set()
        group[name] = sql
        made.add(name.lower())
    yield group
