"""[core] The graph as OpenLineage job events (https://openlineage.io/spec)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hub.observability.lineage.graph import Lineage, LineageNode

_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_COLUMNS = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json"
_OWNERS = "https://openlineage.io/spec/facets/1-0-1/OwnershipJobFacet.json"
_PRODUCER = "event-hub"

# By column of a view: the (topic, column) pairs that it is made of.
Columns = Mapping[str, Sequence[tuple[str, str]]]


def open_lineage(
    graph: Lineage,
    columns: Mapping[str, Columns],
    kafka: str,
    at: str,
    clusters: Mapping[str, str] | None = None,
) -> list[dict[str, object]]:
    """Return the graph as OpenLineage job events, one for each view, group, and topic of a mirror.

    ``kafka``: the cluster's first address, which names its datasets, as ``clusters`` does for remote ones.
    ``at``: ISO 8601.
    """
    space = f"kafka://{kafka}"
    events: list[dict[str, object]] = []

    def dataset(id: str) -> dict[str, object]:
        """Return the dataset of a topic, in its cluster."""
        node = graph.nodes[id]
        if not node.cluster:
            return {"namespace": space, "name": node.name}
        address = (clusters or {}).get(node.cluster, node.cluster)
        return {"namespace": f"kafka://{address}", "name": node.name.rpartition("@")[0]}

    for node in sorted(graph.nodes.values(), key=lambda each: each.id):
        if node.kind not in ("view", "group", "mirror"):
            continue
        inputs = [dataset(edge.source) for edge in graph.into(node.id)]
        outputs: list[dict[str, object]] = []
        for edge in graph.out_of(node.id):
            facets = _column_facet(columns.get(node.name, {}), space)
            outputs.append({**dataset(edge.target), **({"facets": facets} if facets else {})})
            outputs += [
                {"namespace": "hub://stores", "name": each.target.partition(":")[2]}
                for each in graph.out_of(edge.target)
                if graph.nodes[each.target].kind == "store"
            ]
        events.append(
            {
                "eventTime": at,
                "producer": _PRODUCER,
                "schemaURL": _SCHEMA,
                "job": _job(node),
                "inputs": inputs,
                "outputs": outputs,
            }
        )
    return events


def _job(node: LineageNode) -> dict[str, object]:
    owner = {"_producer": _PRODUCER, "_schemaURL": _OWNERS, "owners": [{"name": node.owner}]}
    facets = {"ownership": owner} if node.owner else {}
    return {"namespace": f"hub.{node.kind}s", "name": node.name, "facets": facets}


def _column_facet(columns: Columns, space: str) -> dict[str, object]:
    if not columns:
        return {}
    fields = {
        column: {
            "inputFields": [{"namespace": space, "name": topic, "field": field} for topic, field in made_of]
        }
        for column, made_of in columns.items()
        if column
    }
    return {"columnLineage": {"_producer": _PRODUCER, "_schemaURL": _COLUMNS, "fields": fields}}
