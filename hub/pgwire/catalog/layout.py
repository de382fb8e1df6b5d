"""[core] Tables of pg_catalog, information_schema and hub: their columns, as DuckDB and as Postgres types
them.

Columns are those that clients ask for, in Postgres 15's spelling. Tables without rows are there too, because
clients join them. ``name type, …``; a type without a size is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_DUCKDB: Final[Mapping[str, str]] = {
    "oid": "UINTEGER",
    "oids": "UINTEGER[]",
    "text": "VARCHAR",
    "texts": "VARCHAR[]",
    "int2": "SMALLINT",
    "int2s": "SMALLINT[]",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "bool": "BOOLEAN",
    "time": "TIMESTAMP",
}

_PG: Final = """
pg_namespace: oid oid, nspname, nspowner oid, nspacl texts
pg_class: oid oid, relname, relnamespace oid, reltype oid, reloftype oid, relowner oid, relam oid, relfilenode oid, reltablespace oid, relpages int4, reltuples float4, relallvisible int4, reltoastrelid oid, relhasindex bool, relisshared bool, relpersistence, relkind, relnatts int2, relchecks int2, relhasrules bool, relhastriggers bool, relhassubclass bool, relrowsecurity bool, relforcerowsecurity bool, relispopulated bool, relreplident, relispartition bool, relrewrite oid, relacl texts, reloptions texts, relpartbound, relhasoids bool, xmin int8
pg_attribute: attrelid oid, attname, atttypid oid, attstattarget int4, attlen int2, attnum int2, attndims int4, attcacheoff int4, atttypmod int4, attbyval bool, attstorage, attalign, attcompression, attnotnull bool, atthasdef bool, atthasmissing bool, attidentity, attgenerated, attisdropped bool, attislocal bool, attinhcount int4, attcollation oid, attacl texts, attoptions texts, attfdwoptions texts
pg_type: oid oid, typname, typnamespace oid, typowner oid, typlen int2, typbyval bool, typtype, typcategory, typispreferred bool, typisdefined bool, typdelim, typrelid oid, typelem oid, typarray oid, typinput, typoutput, typreceive, typsend, typmodin, typmodout, typnotnull bool, typbasetype oid, typtypmod int4, typndims int4, typcollation oid, typdefault, typacl texts, typanalyze, typalign, typstorage, typsubscript
pg_attrdef: oid oid, adrelid oid, adnum int2, adbin
pg_constraint: oid oid, conname, connamespace oid, contype, condeferrable bool, condeferred bool, convalidated bool, conrelid oid, contypid oid, conindid oid, conparentid oid, confrelid oid, confupdtype, confdeltype, confmatchtype, conislocal bool, coninhcount int4, connoinherit bool, conkey int2s, confkey int2s, conpfeqop oids, conbin, consrc, confdelsetcols int2s
pg_index: indexrelid oid, indrelid oid, indnatts int2, indnkeyatts int2, indisunique bool, indnullsnotdistinct bool, indisprimary bool, indisexclusion bool, indimmediate bool, indisclustered bool, indisvalid bool, indisready bool, indislive bool, indisreplident bool, indkey int2s, indcollation oids, indclass oids, indoption int2s, indexprs, indpred
pg_database: oid oid, datname, datdba oid, encoding int4, datlocprovider, datistemplate bool, datallowconn bool, datconnlimit int4, datlastsysoid oid, dattablespace oid, datcollate, datctype, daticulocale, datacl texts, datfrozenxid int8, datminmxid int8, datcollversion
pg_roles: oid oid, rolname, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool, rolcanlogin bool, rolreplication bool, rolconnlimit int4, rolpassword, rolvaliduntil time, rolbypassrls bool, rolconfig texts
pg_user: usename, usesysid oid, usecreatedb bool, usesuper bool, userepl bool, usebypassrls bool, passwd, valuntil time, useconfig texts
pg_authid: oid oid, rolname
pg_group: groname, grosysid oid, grolist oids
pg_auth_members: roleid oid, member oid, grantor oid, admin_option bool
pg_description: objoid oid, classoid oid, objsubid int4, description
pg_shdescription: objoid oid, classoid oid, description
pg_settings: name, setting, unit, category, short_desc, extra_desc, context, vartype, source, min_val, max_val, enumvals texts, boot_val, reset_val, sourcefile, sourceline int4, pending_restart bool
pg_am: oid oid, amname, amhandler, amtype
pg_tablespace: oid oid, spcname, spcowner oid, spcacl texts, spcoptions texts
pg_extension: oid oid, extname, extowner oid, extnamespace oid, extrelocatable bool, extversion, extconfig oids, extcondition texts
pg_available_extensions: name, default_version, installed_version, comment
pg_inherits: inhrelid oid, inhparent oid, inhseqno int4, inhdetachpending bool
pg_proc: oid oid, proname, pronamespace oid, proowner oid, prolang oid, procost float4, prorows float4, provariadic oid, prosupport, prokind, prosecdef bool, proleakproof bool, proisstrict bool, proretset bool, provolatile, proparallel, pronargs int2, pronargdefaults int2, prorettype oid, proargtypes oids, proallargtypes oids, proargmodes texts, proargnames texts, proargdefaults, protrftypes oids, prosrc, probin, proconfig texts, proacl texts, proisagg bool, proiswindow bool
pg_trigger: oid oid, tgrelid oid, tgparentid oid, tgname, tgfoid oid, tgtype int2, tgenabled, tgisinternal bool, tgconstrrelid oid, tgconstrindid oid, tgconstraint oid, tgdeferrable bool, tginitdeferred bool, tgnargs int2, tgattr int2s, tgargs, tgqual, tgoldtable, tgnewtable
pg_policy: oid oid, polname, polrelid oid, polcmd, polpermissive bool, polroles oids, polqual, polwithcheck
pg_policies: schemaname, tablename, policyname, permissive, roles texts, cmd, qual, with_check
pg_rewrite: oid oid, rulename, ev_class oid, ev_type, ev_enabled, is_instead bool, ev_qual, ev_action
pg_rules: schemaname, tablename, rulename, definition
pg_views: schemaname, viewname, viewowner, definition
pg_tables: schemaname, tablename, tableowner, tablespace, hasindexes bool, hasrules bool, hastriggers bool, rowsecurity bool
pg_matviews: schemaname, matviewname, matviewowner, tablespace, hasindexes bool, ispopulated bool, definition
pg_indexes: schemaname, tablename, indexname, tablespace, indexdef
pg_range: rngtypid oid, rngsubtype oid, rngmultitypid oid, rngcollation oid, rngsubopc oid, rngcanonical, rngsubdiff
pg_enum: oid oid, enumtypid oid, enumsortorder float4, enumlabel
pg_collation: oid oid, collname, collnamespace oid, collowner oid, collprovider, collisdeterministic bool, collencoding int4, collcollate, collctype, colliculocale, collversion
pg_depend: classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, refobjsubid int4, deptype
pg_shdepend: dbid oid, classid oid, objid oid, objsubid int4, refclassid oid, refobjid oid, deptype
pg_foreign_table: ftrelid oid, ftserver oid, ftoptions texts
pg_foreign_server: oid oid, srvname, srvowner oid, srvfdw oid, srvtype, srvversion, srvacl texts, srvoptions texts
pg_foreign_data_wrapper: oid oid, fdwname, fdwowner oid, fdwhandler oid, fdwvalidator oid, fdwacl texts, fdwoptions texts
pg_publication: oid oid, pubname, pubowner oid, puballtables bool, pubinsert bool, pubupdate bool, pubdelete bool, pubtruncate bool, pubviaroot bool
pg_publication_rel: oid oid, prpubid oid, prrelid oid, prqual, prattrs int2s
pg_publication_namespace: oid oid, pnpubid oid, pnnspid oid
pg_subscription: oid oid, subdbid oid, subname, subowner oid, subenabled bool
pg_statistic_ext: oid oid, stxrelid oid, stxname, stxnamespace oid, stxowner oid, stxstattarget int4, stxkeys int2s, stxkind texts
pg_partitioned_table: partrelid oid, partstrat, partnatts int2, partdefid oid, partattrs int2s, partclass oids, partcollation oids, partexprs
pg_language: oid oid, lanname, lanowner oid, lanispl bool, lanpltrusted bool
pg_operator: oid oid, oprname, oprnamespace oid, oprowner oid, oprkind, oprleft oid, oprright oid, oprresult oid
pg_opclass: oid oid, opcmethod oid, opcname, opcnamespace oid, opcowner oid, opcfamily oid, opcintype oid, opcdefault bool, opckeytype oid
pg_opfamily: oid oid, opfmethod oid, opfname, opfnamespace oid, opfowner oid
pg_aggregate: aggfnoid oid, aggkind, aggnumdirectargs int2
pg_cast: oid oid, castsource oid, casttarget oid, castfunc oid, castcontext, castmethod
pg_conversion: oid oid, conname, connamespace oid
pg_sequence: seqrelid oid, seqtypid oid, seqstart int8, seqincrement int8, seqmax int8, seqmin int8, seqcache int8, seqcycle bool
pg_sequences: schemaname, sequencename, sequenceowner, data_type, start_value int8, last_value int8
pg_event_trigger: oid oid, evtname, evtevent, evtowner oid, evtfoid oid, evtenabled, evttags texts
pg_stat_activity: datid oid, datname, pid int4, usesysid oid, usename, application_name, client_addr, client_port int4, backend_start time, xact_start time, query_start time, state_change time, wait_event_type, wait_event, state, query, backend_type
pg_stat_user_tables: relid oid, schemaname, relname, seq_scan int8, idx_scan int8, n_live_tup int8, n_dead_tup int8, last_vacuum time, last_analyze time
pg_stat_database: datid oid, datname, numbackends int4
pg_stat_ssl: pid int4, ssl bool
pg_locks: locktype, database oid, relation oid, pid int4, mode, granted bool
pg_prepared_xacts: transaction int8, gid, prepared time, owner, database
pg_timezone_names: name, abbrev, utc_offset, is_dst bool
pg_keywords: word, catcode, catdesc
pg_ts_config: oid oid, cfgname, cfgnamespace oid
pg_ts_dict: oid oid, dictname, dictnamespace oid
pg_default_acl: oid oid, defaclrole oid, defaclnamespace oid, defaclobjtype, defaclacl texts
pg_seclabel: objoid oid, classoid oid, objsubid int4, provider, label
pg_user_mappings: umid oid, srvid oid, srvname, umuser oid, usename, umoptions texts
"""

_INFORMATION: Final = """
schemata: catalog_name, schema_name, schema_owner, default_character_set_catalog, default_character_set_schema, default_character_set_name, sql_path
tables: table_catalog, table_schema, table_name, table_type, self_referencing_column_name, reference_generation, user_defined_type_catalog, user_defined_type_schema, user_defined_type_name, is_insertable_into, is_typed, commit_action
columns: table_catalog, table_schema, table_name, column_name, ordinal_position int4, column_default, is_nullable, data_type, character_maximum_length int4, character_octet_length int4, numeric_precision int4, numeric_precision_radix int4, numeric_scale int4, datetime_precision int4, interval_type, interval_precision int4, character_set_name, collation_name, domain_catalog, domain_schema, domain_name, udt_catalog, udt_schema, udt_name, is_self_referencing, is_identity, identity_generation, is_generated, generation_expression, is_updatable
views: table_catalog, table_schema, table_name, view_definition, check_option, is_updatable, is_insertable_into
key_column_usage: constraint_catalog, constraint_schema, constraint_name, table_catalog, table_schema, table_name, column_name, ordinal_position int4, position_in_unique_constraint int4
table_constraints: constraint_catalog, constraint_schema, constraint_name, table_catalog, table_schema, table_name, constraint_type, is_deferrable, initially_deferred
referential_constraints: constraint_catalog, constraint_schema, constraint_name, unique_constraint_catalog, unique_constraint_schema, unique_constraint_name, match_option, update_rule, delete_rule
constraint_column_usage: table_catalog, table_schema, table_name, column_name, constraint_catalog, constraint_schema, constraint_name
check_constraints: constraint_catalog, constraint_schema, constraint_name, check_clause
routines: specific_catalog, specific_schema, specific_name, routine_catalog, routine_schema, routine_name, routine_type, data_type, type_udt_name, routine_definition
parameters: specific_catalog, specific_schema, specific_name, ordinal_position int4, parameter_mode, parameter_name, data_type
table_privileges: grantor, grantee, table_catalog, table_schema, table_name, privilege_type, is_grantable, with_hierarchy
role_table_grants: grantor, grantee, table_catalog, table_schema, table_name, privilege_type, is_grantable, with_hierarchy
column_privileges: grantor, grantee, table_catalog, table_schema, table_name, column_name, privilege_type, is_grantable
sequences: sequence_catalog, sequence_schema, sequence_name, data_type
triggers: trigger_catalog, trigger_schema, trigger_name, event_manipulation, event_object_schema, event_object_table, action_statement, action_timing
character_sets: character_set_catalog, character_set_schema, character_set_name, default_collate_name
collations: collation_catalog, collation_schema, collation_name
enabled_roles: role_name
applicable_roles: grantee, role_name, is_grantable
"""

_HUB: Final = """
views: view, column, type
topics: topic, column, type
queries: query, doc, parameters texts, sql
settings: name, setting
"""


def _tables(text: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in text.strip().splitlines():
        name, columns = line.split(": ", 1)
        parts = (each.split() for each in columns.split(", "))
        found[name] = {part[0]: part[1] if len(part) > 1 else "text" for part in parts}
    return found


# Schema -> table -> column -> type.
LAYOUT: Final[Mapping[str, Mapping[str, Mapping[str, str]]]] = {
    "pg_catalog": _tables(_PG),
    "information_schema": _tables(_INFORMATION),
    "hub": _tables(_HUB),
}


def stored_name(schema: str, table: str) -> str:
    """Return the name under which DuckDB has a table of a catalog.

    >>> stored_name("information_schema", "tables")
    'information_schema__tables'
    """
    return f"{schema}__{table}"


def definitions() -> list[str]:
    """Return CREATE TABLE of every table."""
    found = []
    for schema, tables in LAYOUT.items():
        for table, columns in tables.items():
            listed = ", ".join(f'"{name}" {_DUCKDB[kind]}' for name, kind in columns.items())
            found.append(f"CREATE TABLE {stored_name(schema, table)} ({listed})")
    return found


def schema_of(name: str) -> str | None:
    """Return the schema of a table that is named without one: only pg_catalog is searched by itself."""
    return "pg_catalog" if re.match(r"pg_\w", name) and name in LAYOUT["pg_catalog"] else None
