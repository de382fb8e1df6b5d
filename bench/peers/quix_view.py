"""The bench's view of seven systems as a Quix Streams program: seven topics as one stream, folded by key into
a row.

Runs in Quix's own environment, where nothing of the hub is. Arguments: bootstrap servers, state folder,
group, topic of the rows, schema file of the rows, then topic=schema file for crm, web, orders, pay, tickets,
consent and loyalty.
"""

import io
import json
import sys
from functools import reduce
from pathlib import Path

import fastavro
from quixstreams import Application
from quixstreams.models import TopicConfig

LATEST = (("name", "city", "segment"), ("page",), (), (), (), ("email", "sms"), ("tier",))
IDENTITY = (None, None, "order_id", "event_id", "ticket_id", None, "event_id")
TEXT = (None, None, "status", "kind", "status", None, None)
NUMBER = (None, None, "cents", "cents", None, None, "points")
CRM, WEB, ORDERS, PAY, TICKETS, CONSENT, LOYALTY = range(7)


def schema_of(path: str) -> object:
    schema = json.loads(Path(path).read_text())
    for field in schema["fields"]:
        if isinstance(field["type"], dict):  # milliseconds as they are: a datetime would only cost
            field["type"] = field["type"]["type"]
    return fastavro.parse_schema(schema)


def folded(tagged, state):
    """A part of the row is {"at": …, "events": …, "latest": [at, values], "things": {identity:
    [at, number, text]}}."""
    source, event = tagged
    row = state.get("row") or {}
    part = row.setdefault(str(source), {"at": -1, "events": 0, "latest": [-1, []], "things": {}})
    at = event["at"]
    part["at"] = max(part["at"], at)
    part["events"] += 1
    if LATEST[source] and at >= part["latest"][0]:
        part["latest"] = [at, [event[column] for column in LATEST[source]]]
    if IDENTITY[source]:
        identity, things = event[IDENTITY[source]], part["things"]
        if identity not in things or at >= things[identity][0]:
            number = event[NUMBER[source]] if NUMBER[source] else 0
            things[identity] = [at, number, event[TEXT[source]] if TEXT[source] else ""]
    state.set("row", row)
    return row


def shown(row):
    def latest(source):
        found = row.get(str(source), {}).get("latest", [0, []])[1]
        return dict(zip(LATEST[source], found, strict=False))

    def things(source):
        return [value[1:] for value in row.get(str(source), {}).get("things", {}).values()]

    web = row.get(str(WEB), {"at": 0, "events": 0})
    ordered = sum(number for number, _ in things(ORDERS))
    paid = sum(number for number, kind in things(PAY) if kind == "captured")
    crm, consent = latest(CRM), latest(CONSENT)
    return {
        **{column: crm.get(column, "") for column in LATEST[CRM]},
        "page": latest(WEB).get("page", ""),
        "last_seen": web["at"],
        "visits": web["events"],
        "orders": len(things(ORDERS)),
        "open_orders": sum(status == "open" for _, status in things(ORDERS)),
        "ordered": ordered,
        "paid": paid,
        "owes": ordered - paid,
        "open_tickets": sum(status != "closed" for _, status in things(TICKETS)),
        "email_consent": consent.get("email", False),
        "sms_consent": consent.get("sms", False),
        "points": sum(number for number, _ in things(LOYALTY)),
        "tier": latest(LOYALTY).get("tier", ""),
    }


def main(bootstrap, folder, group, rows_topic, rows_schema, *sources):
    app = Application(
        broker_address=bootstrap,
        consumer_group=group,
        auto_offset_reset="earliest",
        processing_guarantee="exactly-once",
        commit_interval=1.0,
        state_dir=folder,
        loglevel="WARNING",
        producer_extra_config={"compression.type": "lz4"},
        auto_create_topics=True,
    )
    out_schema = schema_of(rows_schema)

    def encoded(row):
        body = io.BytesIO(bytes(5))
        body.seek(5)
        fastavro.schemaless_writer(body, out_schema, shown(row))
        return body.getvalue()

    def decoder(number, schema):
        return lambda value: [number, fastavro.schemaless_reader(io.BytesIO(value[5:]), schema, None)]

    streams = []
    for number, source in enumerate(sources):
        topic, _, file = source.partition("=")
        read = app.topic(topic, key_deserializer="str", value_deserializer="bytes")
        streams.append(app.dataframe(read).apply(decoder(number, schema_of(file))))
    config = TopicConfig(num_partitions=2, replication_factor=1)
    rows = app.topic(rows_topic, key_serializer="str", value_serializer="bytes", config=config)
    every = reduce(lambda one, other: one.concat(other), streams)
    every.apply(folded, stateful=True).apply(encoded).to_topic(rows)
    app.run()


if __name__ == "__main__":
    main(*sys.argv[1:])
