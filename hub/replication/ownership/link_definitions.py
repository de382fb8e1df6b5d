"""[core] Definitions of links: the settings that decide how a link is carried, and which of several
definitions is in force.

Workers of one target may have different files: two projects with one target, or one file that is rolled out
worker by worker. A worker reports in its heartbeat which links it carries, and the definition of each. Of a
link's definitions that living workers have, the one of the newest file is in force. Its workers are the
link's crew: they alone divide its shards, all others release theirs. When the crew is gone, the definition of
the next newest file is in force. Every worker computes the same result from the same heartbeats; the
transactional id guarantees that a shard has one writer.

A definition contains what decides about topics, partitions and records: the mirror itself, the registries of
its ends, and the parts of other mirrors and of ``owns`` that concern topics of the mirror. Addresses and
credentials of clusters are not part of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import orjson

from hub.replication.config.mirrors import MirrorsFile
from hub.replication.config.topology import Neighborhood, neighborhoods
from hub.replication.ownership.links import Link, links

_ROUTING = {"source", "target", "topics", "exclude", "owner", "rename"}
_NO_RULES = {"rehearse"}  # it decides about no topic, partition or record


class LinkDefinition(NamedTuple):
    """Definition of one link. ``since_ms``: modification time of the file, epoch milliseconds. ``digest``:
    equal for equal definitions.
    """

    since_ms: int
    digest: str


Claims = Mapping[str, Mapping[str, LinkDefinition]]
"""Links that each worker carries, with their definitions; by worker."""


def definitions(file: MirrorsFile, since_ms: int) -> dict[str, LinkDefinition]:
    """Return the definition of every link of a file, including ways back. Raises ConfigError (HUB-1604)."""
    return {name: LinkDefinition(since_ms, digest) for name, digest in digests_of(file).items()}


def digests_of(file: MirrorsFile) -> Mapping[str, str]:
    """Return the digest of every link of a file; computed once for each loaded file."""
    return _digests(_Loaded(file))


class _Loaded:
    """A file compared by identity: it is frozen, and too large to be compared by value each time."""

    def __init__(self, file: MirrorsFile) -> None:
        self.file = file

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Loaded) and self.file is other.file

    def __hash__(self) -> int:
        return id(self.file)


@lru_cache(maxsize=8)
def _digests(loaded: _Loaded) -> Mapping[str, str]:
    near = neighborhoods(loaded.file)
    return {
        name: _digest(loaded.file, link, near[link.declared]) for name, link in links(loaded.file).items()
    }


def _digest(file: MirrorsFile, link: Link, near: Neighborhood) -> str:
    body: dict[str, Any] = {
        "mirror": link.mirror.model_dump(mode="json", exclude=_NO_RULES),
        "registries": [file.clusters[end].registry for end in (link.source, link.target)],
        "owners": sorted(near.owners),
        "others": {
            name: file.mirrors[name].model_dump(mode="json", include=_ROUTING)
            for name in sorted(near.mirrors - {link.declared})
        },
    }
    written = orjson.dumps(body, option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(written, digest_size=8).hexdigest()


def in_force(claims: Claims) -> dict[str, LinkDefinition]:
    """Return the definition in force of each link that any worker carries: that of the newest file."""
    link_definitions: dict[str, LinkDefinition] = {}
    for links_of_worker in claims.values():
        for link, definition in links_of_worker.items():
            link_definitions[link] = max(definition, link_definitions.get(link, definition))
    return link_definitions


def crews(claims: Claims) -> dict[str, frozenset[str]]:
    """Return the workers of each link: those that have its definition in force, whatever file they have it
    from.
    """
    chosen = {link: definition.digest for link, definition in in_force(claims).items()}
    found: dict[str, set[str]] = {link: set() for link in chosen}
    for worker, links_of_worker in claims.items():
        for link, definition in links_of_worker.items():
            if definition.digest == chosen[link]:
                found[link].add(worker)
    return {link: frozenset(workers) for link, workers in found.items()}
