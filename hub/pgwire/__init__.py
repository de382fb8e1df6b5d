"""SQL tools connect by Postgres' wire protocol: one more front of the query service, with its grants and
limits.

::

    client ─▶ server.py ─▶ sign_in.py (password) ─▶ connection.py ─▶ session.py decides ─▶ queries.py
                                                                     what to do            │
                             views, topics, saved queries: hub/materializers/queries/answering
                             pg_catalog, information_schema, hub: catalog/

Views are in the schema ``public``, topics in ``topics``, saved queries without parameters in ``queries``.
Nothing is written: transactions are accepted, writes are refused (docs/reference/sql-tools.md,
docs/adr/0039).

protocol/           [core]  messages as bytes              values/        [core]  types, text and binary values
statements.py       [core]  a text as statements           session.py     [core]  the state machine
session_settings.py [core]  SET, SHOW                      sqlstates.py   [core]  errors
hub_sql.py          [core]  $1, schemas, saved queries     catalog/       [edge]  what clients ask about tables
push_rows.py        [edge]  EMIT CHANGES and SUBSCRIBE
queries.py          [shell] describes and runs             results.py     [edge]  rows at the client's pace
statement_log.py    [core]  port to the access log
sign_in.py          [shell] users and tokens               connection.py  [edge]  one connection
server.py           [edge]  listener, TLS, limits       open_port.py      [edge]  opens it by the settings
actions.py          [core]  what a session decides to do
"""  # noqa: E501
