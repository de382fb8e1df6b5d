"""Governance: who owns each topic and view, which classified fields it holds, where these go, who reads them.

A classified field is one with tags in its schema, as masks use them. Its flows are followed through the
columns of views, views over views, sinks, mirrors, the lake and backups. A column whose origin cannot be
traced carries every tag of its sources, as UNKNOWN, so that a report hides no flow.

    model.py            [core] facts of topics, views and places; flows and rows of the report
    flows.py            [core] follow a field to every place
    report.py           [core] one row for each topic and view, with those who read its tagged fields in clear
    flows_file.py       [edge] flows.yaml: where fields with tags may go
    flow_rules.py       [core] judge the flows by these rules
    facts.py            [edge] the facts, from the project's files and the running hub
    declared_fields.py  [edge] fields with their tags, from the schema files of a project
    routes.py           [edge] HTTP and the page
"""
