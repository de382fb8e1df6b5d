"""[core] Declarations that entity views and SQL views share: names, ttl, verification, swap."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from hub.materializers.definition import python_functions as transforms
from hub.materializers.definition.python_functions import Function
from hub.materializers.search.declared_indexes import DeclaredTextIndex, named_fields, one_text_index
from hub.materializers.types.avro_types import Kind
from hub.materializers.types.named_files import PythonFile
from hub.topics.tree.tree_file import LatencyNode, duration_ms

Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]


Sql = Annotated[str, Field(min_length=1, max_length=10_000)]


# How a view runs after its catch-up: in micro-batches (auto, live) or in Spark's real-time mode. ``live``
# catches up in micro-batches too. The mode does not change the view's meaning: its state stays when the mode
# is edited.
RunMode = Literal["auto", "live", "realtime"]


CHANGELOG_PREFIX = "views."
# For a view with a ttl: prefix of the topic that lists expired rows, the name under which it is read as a
# source (no source in a file can have this name), and the column from which the ttl is counted.
EXPIRY_PREFIX = "_hub.expiry."
EXPIRY = "_expiry"
# End of the name of a snapshot group that is one version; names in files have no dot.
_OF_TRANSACTIONS = ".transactions"
LAST_EVENT_AT = "last_event_at"
_SHORTEST_TTL_MS = 1_000
_SHORTEST_RECOMPUTE_MS = 60_000
_WORDY = re.compile(r"(\d+)\s*(second|minute|hour|day)s?", re.IGNORECASE)


def table_of(view: str, number: int | None) -> str:
    """Return the name of a version, which its tables, checkpoint folder and records use. ``number`` None: the
    view's own name.

    >>> table_of("customer_360", None), table_of("customer_360", 2)
    ('customer_360', 'customer_360@2')
    """
    return view if number is None else f"{view}@{number}"


def changelog_of(table: str) -> str:
    """Return the changelog topic of a version.

    >>> changelog_of("customer_360"), changelog_of("customer_360@2")
    ('views.customer_360', 'views.customer_360.v2')
    """
    name, _, number = table.partition("@")
    return f"{CHANGELOG_PREFIX}{name}.v{number}" if number else CHANGELOG_PREFIX + name


def table_of_changelog(topic: str) -> str:
    """Return the version that a changelog topic belongs to.

    >>> table_of_changelog("views.customer_360.v2")
    'customer_360@2'
    """
    name, _, number = topic.removeprefix(CHANGELOG_PREFIX).partition(".v")
    return table_of(name, int(number) if number else None)


def is_transaction_group(group: str) -> bool:
    """Return whether a snapshot group is a version that shows whole source transactions only.

    >>> is_transaction_group("customer_360.transactions"), is_transaction_group("shop")
    (True, False)
    """
    return group.endswith(_OF_TRANSACTIONS)


class Swap(BaseModel, extra="forbid", frozen=True):
    """Replacement of the serving version by a changed view.

    ``when``: ``auto``, as soon as it is ready; ``manual``, on ``hub view apply``; ``in_place``, row by row in
    the same changelog and table instead of beside it. ``keep_hours``: how long the former version keeps
    running for ``hub view rollback``. ``rows_within``: the share by which the number of rows may differ.
    ``same``: columns that must not differ in any row. A version that violates these waits for ``hub view
    apply``.
    """

    when: Literal["auto", "manual", "in_place"] = "auto"
    keep_hours: float = Field(24.0, ge=0, le=24 * 365)
    rows_within: float | None = Field(None, ge=0)
    same: list[Name] = Field(default_factory=list)


class VerificationConfig(BaseModel, extra="forbid", frozen=True):
    """Verification of a view in addition to the checks that always run.

    ``recompute``: how often the view is recomputed from its sources beside the serving version, and all rows
    are compared.
    """

    recompute: str | None = None

    @field_validator("recompute")
    @classmethod
    def _lasts(cls, text: str | None) -> str | None:
        if text is not None and duration_ms(text) < _SHORTEST_RECOMPUTE_MS:
            raise ValueError(f'a recompute every "{text}" is too often: at least 1m')
        return text


class TransactionConsistency(BaseModel, extra="forbid", frozen=True):
    """Rows change by whole transactions of the source database.

    ``transaction``: Debezium's transaction topic; "" for ``PREFIX.transaction``. ``tables``: by topic, the
    name of its table in that topic, where it is not the last two parts of the topic. ``wait``: how long rows
    that END counts may be missing once the log is read to its end; a missing END is waited for without a
    limit. ``most_rows``: of one transaction. ``larger``: ``hold``, the view stops before a larger one and
    says so; ``split``, it shows a larger one in parts.
    """

    transaction: str = Field("", max_length=249)
    tables: dict[str, str] = Field(default_factory=dict, max_length=100)
    wait: str = "30s"
    most_rows: int = Field(100_000, ge=1, le=10_000_000)
    larger: Literal["hold", "split"] = "hold"

    @field_validator("wait")
    @classmethod
    def _lasts(cls, text: str) -> str:
        duration_ms(text)
        return text

    def topic(self, sources: Iterable[str]) -> str:
        """Return the transaction topic. ``sources``: the topics of the tables. Raises ValueError if it does
        not follow from their names.

        >>> TransactionConsistency().topic(["shop.public.orders", "shop.public.lines"])
        'shop.transaction'
        """
        if self.transaction:
            return self.transaction
        prefixes = {".".join(topic.split(".")[:-2]) for topic in sources}
        if len(prefixes) != 1 or not (prefix := prefixes.pop()) or "*" in prefix:
            raise ValueError(
                "the transaction topic does not follow from the topics of the sources; write "
                "consistent_with: {transaction: PREFIX.transaction}"
            )
        return f"{prefix}.transaction"

    def table(self, topic: str) -> str:
        """Return the name of a topic's table in END.

        >>> TransactionConsistency().table("shop.public.orders")
        'public.orders'
        """
        return self.tables.get(topic) or ".".join(topic.split(".")[-2:])


class Transforms(PythonFile):
    """A file of Python functions in the folder of the view (python_functions.py), and its text."""


def _time_ms(text: str, what: str = "a ttl") -> int:
    """Parse a ttl or the time of a history into milliseconds. Raises ValueError with what to write
    instead."""
    try:
        found = duration_ms(text)
    except ValueError:
        worded = _WORDY.fullmatch(text.strip())
        instead = (
            f"{worded[1]}{worded[2][0].lower()}" if worded else "a number and its unit, such as 12h or 30d"
        )
        raise ValueError(f'"{text}" is not {what}: write {instead}') from None
    if found < _SHORTEST_TTL_MS:
        raise ValueError(f'{what} of "{text}" is too short: at least 1s')
    return found


class ViewDeclaration(BaseModel, extra="forbid", frozen=True):
    """Declaration that every kind of view has, and the names of its versions."""

    view: Name
    doc: str = ""
    owner: str = ""
    mode: RunMode = "auto"
    indexes: list[Name | DeclaredTextIndex] = Field(default_factory=list)
    partitions: int | None = Field(None, ge=1, le=256)
    stores: list[Name] = Field(default_factory=list)
    swap: Swap = Swap()
    transforms: Transforms | None = None
    slo: LatencyNode = LatencyNode()
    ttl: str | None = None
    # How long versions of rows are kept, in the stores of SQLite and Postgres.
    history: str | None = None
    # Snapshot group of the view. One query can read all views of a group at the same place of the log.
    cut: Name | None = None
    # Debezium's transactions: all rows of one become visible together.
    consistent_with: TransactionConsistency | None = None
    proof: VerificationConfig = VerificationConfig()
    _number: int | None = PrivateAttr(None)
    _table: str | None = PrivateAttr(None)

    @field_validator("swap", mode="before")
    @classmethod
    def _short(cls, given: object) -> object:
        """``swap: manual`` is short for ``swap: {when: manual}``."""
        return {"when": given} if isinstance(given, str) else given

    @field_validator("transforms", mode="before")
    @classmethod
    def _file(cls, given: object) -> object:
        """``transforms: python_functions.py`` is short for ``transforms: {file: python_functions.py}``."""
        return {"file": given} if isinstance(given, str) else given

    @field_validator("consistent_with", mode="before")
    @classmethod
    def _whole_transactions(cls, given: object) -> object:
        """``consistent_with: transaction`` is short for the defaults."""
        if isinstance(given, str):
            if given != "transaction":
                raise ValueError(f"a view can be consistent with `transaction`, not with `{given}`")
            return {}
        return given

    @field_validator("ttl", "history", mode="before")
    @classmethod
    def _unit(cls, given: object) -> object:
        # a number without a unit: the next check reports it
        return str(given) if isinstance(given, int | float) else given

    @field_validator("ttl", "history")
    @classmethod
    def _lasts(cls, text: str | None, info: ValidationInfo) -> str | None:
        if text is not None:
            _time_ms(text, f"a {info.field_name}")
        return text

    @model_validator(mode="after")
    def _in_batches_only(self) -> Self:
        if self.transforms is not None and self.mode == "realtime":
            raise ValueError(
                "Python functions are called for batches, and real-time mode has none; write `mode: live`"
            )
        if self.cut is not None and self.mode == "realtime":
            raise ValueError(
                "the views of a `cut` stop at the same place again and again, and real-time mode stops "
                "nowhere; write `mode: live`, or leave `cut` out"
            )
        return self

    def check_transactions(self, topics: Mapping[str, str], changes: Collection[str]) -> None:
        """Raise ValueError if the view cannot be consistent with source transactions. ``topics``: of each
        source; ``changes``: the sources that are change events of rows.
        """
        if self.consistent_with is None:
            return
        for name in topics:
            if name not in changes:
                raise ValueError(
                    f'consistent_with: source "{name}" has no source transactions; it must be a topic with '
                    "`cdc: debezium`, and not `as: static`"
                )
        instead = {
            "`cut`": self.cut is not None,
            "`mode: realtime`": self.mode == "realtime",
            "`ttl`": self.ttl is not None,
            "`swap: in_place`": self.swap.when == "in_place",
        }
        for what, is_there in instead.items():
            if is_there:
                raise ValueError(f"consistent_with and {what} cannot be combined; remove one of them")
        self.consistent_with.topic(topics.values())

    @property
    def has_python(self) -> bool:
        """True if Python code of the project belongs to the view."""
        return self.transforms is not None

    @property
    def functions(self) -> tuple[Function, ...]:
        """The Python functions that the view's SQL may call. Raises ConfigError when their file is wrong."""
        if self.transforms is None:
            return ()
        return transforms.functions(self.transforms.text, self.transforms.file)

    @field_validator("stores")
    @classmethod
    def _distinct(cls, names: list[str]) -> list[str]:
        return list(dict.fromkeys(names))

    _one_text_index = field_validator("indexes")(one_text_index)

    @property
    def name(self) -> str:
        return self.view

    @property
    def ttl_ms(self) -> int | None:
        """Time without an event after which a row is deleted, in milliseconds; None: never."""
        return None if self.ttl is None else _time_ms(self.ttl)

    @property
    def history_ms(self) -> int | None:
        """Time for which versions of rows are kept, in milliseconds; None: only the rows themselves."""
        return None if self.history is None else _time_ms(self.history)

    @property
    def recompute_ms(self) -> int | None:
        """Interval of recomputing the view for verification, in milliseconds; None: only on request."""
        return None if self.proof.recompute is None else duration_ms(self.proof.recompute)

    @property
    def expiry_topic(self) -> str | None:
        """Topic that lists expired rows for all versions of the view; None if the view has no ttl."""
        return None if self.ttl is None else f"{EXPIRY_PREFIX}{self.view}"

    @property
    def kept_indexes(self) -> list[str]:
        """Indexes of fields that stores keep: those of the file, and with a ttl that of expired rows."""
        own = [] if self.ttl is None else [LAST_EVENT_AT]
        return list(dict.fromkeys([*named_fields(self.indexes), *own]))

    @property
    def table(self) -> str:
        """Name of this version of the view."""
        return self._table or table_of(self.view, self._number)

    @property
    def group(self) -> str | None:
        """Snapshot group of this version: that of `cut`, or its own if it shows whole transactions only."""
        if self.consistent_with is not None:
            return table_of(self.view, self._number) + _OF_TRANSACTIONS
        return self.cut

    @property
    def changelog(self) -> str:
        """Topic that this version of the view is published to."""
        return changelog_of(table_of(self.view, self._number))

    def of_version(self, number: int | None, table: str | None = None) -> Self:
        """Return the view as its version ``number``; None: the version that has the view's own names.

        ``table``: its name where only one version is kept.
        """
        found = self.model_copy()
        found._number, found._table = number, table
        return found


# Columns that every event has besides its own.
META: Mapping[str, Kind] = {
    "_topic": "string",
    "_partition": "integer",
    "_offset": "integer",
    "_timestamp": "timestamp",
    "_key": "string",
    "_deleted": "boolean",
}
