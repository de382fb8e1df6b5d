"""[core] A snapshot as rows of pg_catalog, information_schema and hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hub.pgwire.catalog.layout import LAYOUT
from hub.pgwire.catalog.snapshot import (
    SCHEMAS,
    SYSTEM,
    CatalogColumn,
    CatalogSnapshot,
    CatalogTable,
    numbered,
)
from hub.pgwire.session_settings import DEFAULTS
from hub.pgwire.sign_in import DATABASE
from hub.pgwire.values import types as t

Row = Mapping[str, Any]
OWNER, OWNER_OID, DATABASE_OID = "hub", 10, 5
# OIDs that clients compare with (regclass of catalogs): src/include/catalog/*.h
_OWN_OIDS = {
    "pg_class": 1259,
    "pg_attribute": 1249,
    "pg_type": 1247,
    "pg_proc": 1255,
    "pg_namespace": 2615,
    "pg_database": 1262,
    "pg_constraint": 2606,
    "pg_description": 2609,
    "pg_attrdef": 2604,
    "pg_index": 2610,
    "pg_trigger": 2620,
    "pg_rewrite": 2618,
    "pg_extension": 3079,
    "pg_am": 2601,
    "pg_roles": 12_088,
}
_OID_OF = {
    "oid": t.OID,
    "oids": 1028,
    "text": t.TEXT,
    "texts": 1009,
    "int2": t.INT2,
    "int2s": 1005,
    "int4": t.INT4,
    "int8": t.INT8,
    "float4": t.FLOAT4,
    "bool": t.BOOL,
    "time": t.TIMESTAMPTZ,
}
_PRECISION = {t.INT2: 16, t.INT4: 32, t.INT8: 64, t.FLOAT4: 24, t.FLOAT8: 53}


_DATABASE_ROW = {
    "oid": DATABASE_OID,
    "datname": DATABASE,
    "datdba": OWNER_OID,
    "encoding": 6,
    "datlocprovider": "c",
    "datistemplate": False,
    "datallowconn": True,
    "datconnlimit": -1,
    "dattablespace": 1663,
    "datcollate": "C",
    "datctype": "C",
}


def system_tables() -> list[CatalogTable]:
    """Return the tables of pg_catalog, information_schema and hub as tables of the catalog."""
    return [
        CatalogTable(
            schema,
            name,
            "r" if schema == "pg_catalog" else "v",
            tuple(CatalogColumn(column, _OID_OF[kind]) for column, kind in columns.items()),
        )
        for schema, tables in LAYOUT.items()
        for name, columns in tables.items()
    ]


def all_tables(snapshot: CatalogSnapshot) -> list[tuple[int, CatalogTable]]:
    """Return every table with its OID; those of Postgres itself have Postgres' own."""
    found = numbered([*snapshot.tables, *system_tables()])
    return [
        (_OWN_OIDS.get(table.name, oid) if table.schema == "pg_catalog" else oid, table)
        for oid, table in found
    ]


def catalog_rows(snapshot: CatalogSnapshot) -> dict[tuple[str, str], list[Row]]:
    """Return the rows of each table that has some, by schema and table."""
    tables = all_tables(snapshot)
    rows_of_tables: dict[tuple[str, str], list[Row]] = {
        ("pg_catalog", name): rows for name, rows in _fixed_rows().items()
    }
    rows_of_tables["pg_catalog", "pg_type"] = [
        *_base_types(),
        *(_row_type(oid, each) for oid, each in tables),
    ]
    rows_of_tables["pg_catalog", "pg_class"] = [_class(oid, each) for oid, each in tables]
    rows_of_tables["pg_catalog", "pg_attribute"] = [
        row for oid, each in tables for row in _attributes(oid, each)
    ]
    rows_of_tables["pg_catalog", "pg_description"] = [
        {"objoid": oid, "classoid": 1259, "objsubid": 0, "description": each.comment}
        for oid, each in tables
        if each.comment
    ]
    relations = [each for _, each in tables]
    rows_of_tables["pg_catalog", "pg_views"] = [
        {"schemaname": each.schema, "viewname": each.name, "viewowner": OWNER, "definition": ""}
        for each in relations
        if each.relkind == "v"
    ]
    rows_of_tables["pg_catalog", "pg_tables"] = [
        {
            "schemaname": each.schema,
            "tablename": each.name,
            "tableowner": OWNER,
            **dict.fromkeys(("hasindexes", "hasrules", "hastriggers", "rowsecurity"), False),
        }
        for each in relations
        if each.relkind == "r"
    ]
    return rows_of_tables | _information(relations) | _hub_tables(snapshot)


def _fixed_rows() -> dict[str, list[Row]]:
    role = {
        "rolname": OWNER,
        "oid": OWNER_OID,
        **dict.fromkeys(
            ("rolsuper", "rolcreaterole", "rolcreatedb", "rolreplication", "rolbypassrls"), False
        ),
        **dict.fromkeys(("rolinherit", "rolcanlogin"), True),
        "rolconnlimit": -1,
    }
    return {
        "pg_namespace": [
            {"oid": oid, "nspname": name, "nspowner": OWNER_OID} for name, oid in SCHEMAS.items()
        ],
        "pg_database": [_DATABASE_ROW],
        "pg_roles": [role],
        "pg_user": [
            {
                "usename": OWNER,
                "usesysid": OWNER_OID,
                **dict.fromkeys(("usecreatedb", "usesuper", "userepl", "usebypassrls"), False),
            }
        ],
        "pg_am": [{"oid": 2, "amname": "heap", "amtype": "t"}],
        "pg_tablespace": [{"oid": 1663, "spcname": "pg_default", "spcowner": OWNER_OID}],
        "pg_language": [{"oid": 14, "lanname": "sql", "lanispl": False, "lanpltrusted": True}],
        "pg_collation": [
            {"oid": 100, "collname": "default", "collnamespace": 11, "collprovider": "d"},
            {"oid": 950, "collname": "C", "collnamespace": 11, "collprovider": "c"},
        ],
        "pg_timezone_names": [{"name": "UTC", "abbrev": "UTC", "utc_offset": "00:00:00", "is_dst": False}],
        "pg_keywords": [
            {"word": keyword, "catcode": "R"}
            for keyword in ("select", "from", "where", "group", "order", "limit")
        ],
        "pg_settings": [
            {"name": name, "setting": value, "context": "user", "vartype": "string", "source": "default"}
            for name, value in DEFAULTS.items()
        ],
    }


def _base_types() -> Iterator[Row]:
    for each in t.TYPES:
        yield _type(each.oid, each.name, each.size, each.category, array=each.array)
        if each.array:
            yield _type(each.array, f"_{each.name}", -1, "A", element=each.oid)


def _type(oid: int, name: str, size: int, category: str, *, array: int = 0, element: int = 0) -> Row:
    pseudo = category in ("P", "X")
    return {
        "oid": oid,
        "typname": name,
        "typnamespace": 11,
        "typowner": OWNER_OID,
        "typlen": size,
        "typbyval": size in (1, 2, 4, 8),
        "typtype": "p" if pseudo else "b",
        "typcategory": category,
        "typispreferred": name in ("bool", "text", "oid", "float8", "timestamptz"),
        "typisdefined": True,
        "typdelim": ",",
        "typrelid": 0,
        "typelem": element,
        "typarray": array,
        "typinput": "array_in" if element else f"{name}in",
        "typoutput": "array_out" if element else f"{name}out",
        "typreceive": "array_recv" if element else f"{name}recv",
        "typsend": "array_send" if element else f"{name}send",
        "typnotnull": False,
        "typbasetype": 0,
        "typtypmod": -1,
        "typndims": 0,
        "typcollation": 100 if category == "S" else 0,
    }


def _row_type(oid: int, table: CatalogTable) -> Row:
    row = dict(_type(_type_oid(oid), table.name, -1, "C"))
    return row | {"typtype": "c", "typrelid": oid, "typnamespace": SCHEMAS[table.schema]}


def _type_oid(oid: int) -> int:
    """Return the OID of a table's row type: clear of every table's."""
    return oid + (1 << 31)


def _class(oid: int, table: CatalogTable) -> Row:
    return {
        "oid": oid,
        "relname": table.name,
        "relnamespace": SCHEMAS[table.schema],
        "reltype": _type_oid(oid),
        "reloftype": 0,
        "relowner": OWNER_OID,
        "relam": 2 if table.relkind == "r" else 0,
        "relfilenode": 0,
        "reltablespace": 0,
        "relpages": 0,
        "reltuples": -1.0,
        "relallvisible": 0,
        "reltoastrelid": 0,
        **dict.fromkeys(
            ("relhasindex", "relisshared", "relhasrules", "relhastriggers", "relhassubclass"), False
        ),
        **dict.fromkeys(("relrowsecurity", "relforcerowsecurity", "relispartition", "relhasoids"), False),
        "relpersistence": "p",
        "relkind": table.relkind,
        "relnatts": len(table.columns),
        "relchecks": 0,
        "relispopulated": True,
        "relreplident": "n",
        "xmin": 1,
    }


def _attributes(oid: int, table: CatalogTable) -> Iterator[Row]:
    for number, column in enumerate(table.columns, 1):
        pg_type = t.BY_OID.get(column.oid)
        yield {
            "attrelid": oid,
            "attname": column.name,
            "atttypid": column.oid,
            "attstattarget": -1,
            "attlen": -1 if pg_type is None else pg_type.size,
            "attnum": number,
            "attndims": 1 if pg_type is None else 0,
            "attcacheoff": -1,
            "atttypmod": -1,
            "attbyval": False,
            "attstorage": "p",
            "attalign": "i",
            "attcompression": "",
            "attnotnull": False,
            **dict.fromkeys(("atthasdef", "atthasmissing", "attisdropped"), False),
            "attidentity": "",
            "attgenerated": "",
            "attislocal": True,
            "attinhcount": 0,
            "attcollation": 100 if column.oid == t.TEXT else 0,
        }


def _information(tables: list[CatalogTable]) -> dict[tuple[str, str], list[Row]]:
    own = "information_schema"
    return {
        (own, "schemata"): [
            {"catalog_name": DATABASE, "schema_name": name, "schema_owner": OWNER} for name in SCHEMAS
        ],
        (own, "tables"): [
            {
                "table_catalog": DATABASE,
                "table_schema": each.schema,
                "table_name": each.name,
                "table_type": "VIEW" if each.relkind == "v" else "BASE TABLE",
                "is_insertable_into": "NO",
                "is_typed": "NO",
            }
            for each in tables
        ],
        (own, "views"): [
            {
                "table_catalog": DATABASE,
                "table_schema": each.schema,
                "table_name": each.name,
                "check_option": "NONE",
                "is_updatable": "NO",
                "is_insertable_into": "NO",
            }
            for each in tables
            if each.relkind == "v"
        ],
        (own, "columns"): [row for each in tables for row in _information_columns(each)],
        (own, "table_privileges"): (granted := [_grant(each) for each in tables]),
        (own, "role_table_grants"): granted,
        (own, "character_sets"): [{"character_set_name": "UTF8", "default_collate_name": "C"}],
        (own, "enabled_roles"): [{"role_name": OWNER}],
    }


def _grant(table: CatalogTable) -> Row:
    return {
        "grantor": OWNER,
        "grantee": OWNER,
        "table_catalog": DATABASE,
        "table_schema": table.schema,
        "table_name": table.name,
        "privilege_type": "SELECT",
        "is_grantable": "NO",
        "with_hierarchy": "YES",
    }


def _information_columns(table: CatalogTable) -> Iterator[Row]:
    for number, column in enumerate(table.columns, 1):
        pg_type = t.BY_OID.get(column.oid)
        name = pg_type.name if pg_type is not None else f"_{t.BY_OID[t.ELEMENT_OF[column.oid]].name}"
        precision = _PRECISION.get(column.oid)
        yield {
            "table_catalog": DATABASE,
            "table_schema": table.schema,
            "table_name": table.name,
            "column_name": column.name,
            "ordinal_position": number,
            "is_nullable": "YES",
            "data_type": t.spelled(column.oid) if pg_type is not None else "ARRAY",
            "numeric_precision": precision,
            "numeric_precision_radix": 2 if precision else None,
            "numeric_scale": 0 if column.oid in (t.INT2, t.INT4, t.INT8) else None,
            "datetime_precision": 6 if column.oid == t.TIMESTAMPTZ else 0 if column.oid == t.DATE else None,
            "udt_catalog": DATABASE,
            "udt_schema": "pg_catalog",
            "udt_name": name,
            **dict.fromkeys(("is_self_referencing", "is_identity", "is_updatable"), "NO"),
            "is_generated": "NEVER",
        }


def _hub_tables(snapshot: CatalogSnapshot) -> dict[tuple[str, str], list[Row]]:
    def columns(schema: str, noun: str) -> list[Row]:
        return [
            {noun: table.name, "column": column.name, "type": t.spelled(column.oid)}
            for table in snapshot.tables
            if table.schema == schema
            for column in table.columns
        ]

    return {
        (SYSTEM, "views"): columns("public", "view"),
        (SYSTEM, "topics"): columns("topics", "topic"),
        (SYSTEM, "queries"): [
            {"query": each.name, "doc": each.doc, "sql": each.sql, "parameters": list(each.parameters)}
            for each in snapshot.queries
        ],
        (SYSTEM, "settings"): [{"name": name, "setting": value} for name, value in DEFAULTS.items()],
    }
