"""[core] Postgres' types that are spoken here: numbers (pg_type.dat), names, sizes, and kinds of the hub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

BOOL, BYTEA, CHAR, NAME, INT8, INT2, INT4, TEXT, OID, JSON = 16, 17, 18, 19, 20, 21, 23, 25, 26, 114
FLOAT4, FLOAT8, UNKNOWN, BPCHAR, VARCHAR, DATE, TIME, TIMESTAMP = 700, 701, 705, 1042, 1043, 1082, 1083, 1114
TIMESTAMPTZ, INTERVAL, NUMERIC, UUID, JSONB, VOID = 1184, 1186, 1700, 2950, 3802, 2278
TEXT_ARRAY, OID_ARRAY = 1009, 1028
REGPROC, REGTYPE, REGCLASS, REGNAMESPACE, INT2VECTOR, OIDVECTOR = 24, 2206, 2205, 4089, 22, 30


@dataclass(frozen=True, slots=True)
class PgType:
    """A row of pg_type: ``size`` in bytes (-1: variable), ``category`` as in pg_type, ``array``:
    its array type."""

    oid: int
    name: str
    size: int
    category: str
    array: int


TYPES: Final = tuple(
    PgType(*each)
    for each in (
        (BOOL, "bool", 1, "B", 1000),
        (BYTEA, "bytea", -1, "U", 1001),
        (CHAR, "char", 1, "Z", 1002),
        (NAME, "name", 64, "S", 1003),
        (INT8, "int8", 8, "N", 1016),
        (INT2, "int2", 2, "N", 1005),
        (INT2VECTOR, "int2vector", -1, "A", 1006),
        (INT4, "int4", 4, "N", 1007),
        (REGPROC, "regproc", 4, "N", 1008),
        (TEXT, "text", -1, "S", 1009),
        (OID, "oid", 4, "N", 1028),
        (OIDVECTOR, "oidvector", -1, "A", 1013),
        (JSON, "json", -1, "U", 199),
        (FLOAT4, "float4", 4, "N", 1021),
        (FLOAT8, "float8", 8, "N", 1022),
        (UNKNOWN, "unknown", -2, "X", 0),
        (BPCHAR, "bpchar", -1, "S", 1014),
        (VARCHAR, "varchar", -1, "S", 1015),
        (DATE, "date", 4, "D", 1182),
        (TIME, "time", 8, "D", 1183),
        (TIMESTAMP, "timestamp", 8, "D", 1115),
        (TIMESTAMPTZ, "timestamptz", 8, "D", 1185),
        (INTERVAL, "interval", 16, "T", 1187),
        (NUMERIC, "numeric", -1, "N", 1231),
        (REGCLASS, "regclass", 4, "N", 2210),
        (REGTYPE, "regtype", 4, "N", 2211),
        (REGNAMESPACE, "regnamespace", 4, "N", 4090),
        (UUID, "uuid", 16, "U", 2951),
        (VOID, "void", 4, "P", 0),
        (JSONB, "jsonb", -1, "U", 3807),
    )
)
BY_OID: Final[Mapping[int, PgType]] = {each.oid: each for each in TYPES}
ELEMENT_OF: Final[Mapping[int, int]] = {each.array: each.oid for each in TYPES if each.array}
# As format_type() and information_schema spell them.
SPELLED: Final[Mapping[str, str]] = {
    "bool": "boolean",
    "char": '"char"',
    "int8": "bigint",
    "int2": "smallint",
    "int4": "integer",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "time": "time without time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}
OID_OF_KIND: Final[Mapping[str, int]] = {
    "string": TEXT,
    "long": INT8,
    "double": FLOAT8,
    "decimal": NUMERIC,
    "boolean": BOOL,
    "timestamp": TIMESTAMPTZ,
    "date": DATE,
    "bytes": BYTEA,
    "json": JSON,
    "null": TEXT,
}


def spelled(oid: int) -> str:
    """Return the SQL name of a type.

    >>> spelled(20), spelled(1009), spelled(4711)
    ('bigint', 'text[]', '???')
    """
    if oid in ELEMENT_OF:
        return f"{spelled(ELEMENT_OF[oid])}[]"
    pg_type = BY_OID.get(oid)
    return "???" if pg_type is None else SPELLED.get(pg_type.name, pg_type.name)


def size_of(oid: int) -> int:
    """Return the size of a type in bytes, -1 for a variable one."""
    pg_type = BY_OID.get(oid)
    return -1 if pg_type is None else pg_type.size
