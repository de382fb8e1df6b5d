"""[edge] Rows of a running query, written by its thread to a temporary file and sent at the client's pace.

A query computes as fast as it can and then gives back its slot and its transaction, however slowly its client
reads: a cursor may stay open for minutes. What waits is on disk (in memory up to 1 MB), up to a limit per
result.
"""

from __future__ import annotations

import asyncio
import re
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice
from typing import Any

from hub.materializers.queries.parser import SqlError
from hub.materializers.queries.relations import OutputColumn
from hub.materializers.queries.running import RunningQuery, whole_number
from hub.pgwire.protocol.backend import Field, framed
from hub.pgwire.protocol.frontend import format_of
from hub.pgwire.statements import CopyForm
from hub.pgwire.values.encode import Encode, encoder
from hub.pgwire.values.types import INT8, OID_OF_KIND, size_of

_IN_MEMORY = 1 << 20
_ROWS_A_BLOCK = 256
READ_BYTES = 1 << 16
_NULL = b"\xff\xff\xff\xff"
EncodeRows = Callable[[Iterable[Sequence[Any]]], bytes]


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """Most rows and bytes of one result."""

    rows: int
    bytes: int


def fields_of(columns: Sequence[OutputColumn], formats: Sequence[int]) -> list[Field]:
    """Return the columns of a query over views and topics as fields of a result."""
    return [
        Field(each.name, (oid := OID_OF_KIND[each.kind]), size_of(oid), format_of(formats, number))
        for number, each in enumerate(columns)
    ]


def row_encoder(fields: Sequence[Field]) -> EncodeRows:
    """Return the function that writes rows as DataRow messages."""
    encodes = [_checked(each) for each in fields]
    count, pack, head = len(fields), struct.Struct("!i").pack, struct.Struct("!ih").pack

    def encode(rows: Iterable[Sequence[Any]]) -> bytes:
        found: list[bytes] = []
        for row in rows:
            parts: list[bytes] = []
            for value, convert in zip(row, encodes, strict=True):
                if value is None:
                    parts.append(_NULL)
                else:
                    item = convert(value)
                    parts += (pack(len(item)), item)
            body = b"".join(parts)
            found += (b"D", head(len(body) + 6, count), body)
        return b"".join(found)

    return encode


def _checked(each: Field) -> Encode:
    encode = encoder(each.oid, each.format)
    if each.oid != INT8:
        return encode
    return lambda value: encode(value if type(value) is int else whole_number(value))


def copy_encoder(fields: Sequence[Field], form: CopyForm) -> EncodeRows:
    """Return the function that writes rows as CopyData messages, in CSV or Postgres' text format."""
    encodes = [_checked(each) for each in fields]

    def line(row: Sequence[bytes | None]) -> bytes:
        texts = [None if each is None else each.decode() for each in row]
        if form.csv:
            return _csv_line(texts, form)
        shown = (form.null if each is None else _escaped(each, form.delimiter) for each in texts)
        return (form.delimiter.join(shown) + "\n").encode()

    def encode(rows: Iterable[Sequence[Any]]) -> bytes:
        return b"".join(
            framed(
                b"d",
                line([None if each is None else f(each) for each, f in zip(row, encodes, strict=True)]),
            )
            for row in rows
        )

    return encode


def copy_header(fields: Sequence[Field], form: CopyForm) -> bytes:
    names: list[str | None] = [each.name for each in fields]
    if form.csv:
        return framed(b"d", _csv_line(names, form))
    return framed(b"d", (form.delimiter.join(map(str, names)) + "\n").encode())


def _csv_line(texts: Sequence[str | None], form: CopyForm) -> bytes:
    special = _special(form.delimiter)
    cells = []
    for each in texts:
        if each is None:
            cells.append(form.null)
        # An empty text is quoted where NULL is written as nothing.
        elif each == form.null or special.search(each):
            cells.append('"' + each.replace('"', '""') + '"')
        else:
            cells.append(each)
    return (form.delimiter.join(cells) + "\n").encode()


@lru_cache(maxsize=100)
def _special(delimiter: str) -> re.Pattern[str]:
    return re.compile("[" + re.escape(delimiter) + '"\r\n]')


def _escaped(text: str, delimiter: str) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text if delimiter == "\t" else text.replace(delimiter, "\\" + delimiter)


@dataclass(slots=True)
class ResultSpool:
    """Rows between the thread of a query and the loop of a connection. ``formats``: of the columns."""

    loop: asyncio.AbstractEventLoop
    limits: ResultLimits
    formats: Sequence[int] = ()
    copy: CopyForm | None = None
    fields: list[Field] = field(default_factory=list)
    rows: int = 0
    error: Exception | None = None
    warnings: tuple[Mapping[str, str], ...] = ()
    ended: bool = False
    _size: int = 0
    _sent: int = 0
    _rest: bytes = b""
    _closed: bool = False
    live: bool = False  # rows of a push query: read bytes are freed, and the query waits for its reader
    _room: asyncio.Event = field(default_factory=asyncio.Event)
    _columns_ready: asyncio.Event = field(default_factory=asyncio.Event)
    _news: asyncio.Event = field(default_factory=asyncio.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _file: tempfile.SpooledTemporaryFile[bytes] = field(
        default_factory=lambda: tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 (closed by ``close``)
    )

    # ---- the query's thread

    def take(
        self,
        rows: Iterable[Sequence[Any]],
        columns: Sequence[OutputColumn],
        running: RunningQuery,
        limit: int,
    ) -> tuple[list[list[Any]], bool]:
        """Write the rows of a query over views and topics. Raises SqlError beyond a limit."""
        self.write(rows, fields_of(columns, self.formats), running)
        return [], False

    def write(self, rows: Iterable[Sequence[Any]], fields: list[Field], running: RunningQuery) -> None:
        """Write rows with these columns. Raises SqlError beyond a limit of time, rows or bytes."""
        self._call_in_loop(lambda: self._begin(fields))
        encode = row_encoder(fields) if self.copy is None else copy_encoder(fields, self.copy)
        if self.copy is not None and self.copy.header:
            self._append(copy_header(fields, self.copy), 0)
        waiting = iter(rows)
        while block := list(islice(waiting, _ROWS_A_BLOCK)):
            if running.over:
                raise running.ended()
            if self.rows + len(block) > self.limits.rows:
                raise _too_much(f"{self.limits.rows} rows", "pgwire_rows")
            self._append(encode(block), len(block))
            time.sleep(0)  # other requests of this server get the interpreter between two blocks

    def _append(self, data: bytes, rows: int) -> None:
        with self._lock:
            if self._closed:
                return
            if self.live and self._sent == self._size:
                self._file.seek(0)
                self._file.truncate()
                self._sent = self._size = 0
            if self._size + len(data) > self.limits.bytes:
                raise _too_much(f"{self.limits.bytes >> 20} MB", "pgwire_result_mb")
            self._file.seek(self._size)
            self._file.write(data)
            self._size += len(data)
            self.rows += rows
        self._call_in_loop(self._news.set)

    def _call_in_loop(self, act: Callable[[], object]) -> None:
        self.loop.call_soon_threadsafe(act)

    # ---- the connection's loop

    def begin(self, fields: list[Field]) -> None:
        """Begin the rows of a push query."""
        self.live = True
        if self.copy is not None and self.copy.header:
            self._append(copy_header(fields, self.copy), 0)
        self._begin(fields)

    async def add(self, rows: Sequence[Sequence[Any]]) -> None:
        """Write rows of a push query; wait while more than a megabyte of them waits for the client."""
        while self._size - self._sent > _IN_MEMORY and not self._closed:
            self._room.clear()
            await self._room.wait()
        encode = row_encoder(self.fields) if self.copy is None else copy_encoder(self.fields, self.copy)
        self._append(encode(rows), len(rows))

    def _begin(self, fields: list[Field]) -> None:
        self.fields = fields
        self._columns_ready.set()

    def finish(self, error: Exception | None, warnings: Sequence[Mapping[str, str]] = ()) -> None:
        """End the rows; ``error``: why they are not complete. ``warnings``: fields of each, such as of rows
        that are missing."""
        self.error, self.ended, self.warnings = error, True, tuple(warnings)
        self._columns_ready.set()
        self._news.set()

    async def columns(self) -> list[Field]:
        """Return the columns as soon as the query runs. Raises its error."""
        await self._columns_ready.wait()
        if self.error is not None:
            raise self.error
        return self.fields

    async def read(self, rows: int, wait_s: float | None = None) -> bytes | None:
        """Return the next bytes: whole messages of at most ``rows`` rows (0: any bytes). None: no more rows.

        ``wait_s``: return no bytes when none come in this time; None: wait for them.
        Raises the query's error after the rows before it.
        """
        while True:
            self._news.clear()
            data = self._rest + self._next()
            if data and rows:
                data, self._rest = _first(data, rows)
            elif data:
                self._rest = b""
            if data:
                return data
            if self.ended and self._sent >= self._size:
                if self.error is not None:
                    raise self.error
                return None
            if self._sent >= self._size:
                try:
                    async with asyncio.timeout(wait_s):
                        await self._news.wait()
                except TimeoutError:
                    return b""

    def _next(self) -> bytes:
        with self._lock:
            if self._closed:
                return b""
            self._file.seek(self._sent)
            data = self._file.read(min(READ_BYTES, self._size - self._sent))
            self._sent += len(data)
        self._room.set()
        return data

    def close(self) -> None:
        """Free the file. Rows that are still written are dropped."""
        with self._lock:
            self._closed = True
            self._file.close()
        self._room.set()


def _first(data: bytes, rows: int) -> tuple[bytes, bytes]:
    """Split whole messages, at most ``rows``, from the rest."""
    at = 0
    for _ in range(rows):
        end = _message_end(data, at)
        if end is None:
            break
        at = end
    return data[:at], data[at:]


def _message_end(data: bytes, at: int) -> int | None:
    if len(data) < at + 5:
        return None
    end = at + 1 + int(struct.unpack_from("!i", data, at + 1)[0])
    return end if end <= len(data) else None


def count_of(data: bytes) -> int:
    """Return the number of whole messages."""
    return sum(1 for _ in _messages(data))


def _messages(data: bytes) -> Iterator[int]:
    at: int | None = 0
    while (at := _message_end(data, at or 0)) is not None:
        yield at


def _too_much(limit: str, setting: str) -> SqlError:
    return SqlError(
        f"the result has more than {limit}",
        hint=f"ask for less (WHERE, LIMIT, GROUP BY), or raise {setting} in hub.yaml",
        code="HUB-1448",
    )
