"""[edge] Clusters of mirrors.yaml: their clients, what the planner compares, and what mirrors wrote there.

``ClusterHandle`` is one cluster with its clients: confluent-kafka's for rare calls (topics, settings, ACLs,
groups, records of the hub's own topics), the hub's own protocol client for batches. TLS and SASL settings
apply to both.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

from hub.config import Settings, without_credentials
from hub.errors import ConfigError, HubError, PeerError
from hub.kafka import KafkaCluster
from hub.kafka.acls import AccessRule
from hub.kafka.oauth_tokens import Tokens
from hub.kafka.own_cluster import check_files
from hub.kafka.protocol.broker_client import ClusterAccess
from hub.kafka.protocol.unpacked_size import DEFAULT_BOUNDS, MIB, UnpackedBounds
from hub.log import TopicDescription
from hub.log.topic_names import EQUAL_NAMES, TopicNames
from hub.replication.clusters.closed_cluster import ClosedCluster
from hub.replication.clusters.status_records import STATUS_CONFIG, STATUS_TOPIC
from hub.replication.config.load_mirrors import connection
from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.checkpoint import (
    CHECKPOINTS_CONFIG,
    CHECKPOINTS_TOPIC,
    CONTROL_CONFIG,
    CONTROL_TOPIC,
    MAP_CONFIG,
    MAP_TOPIC,
)
from hub.replication.ownership.links import Link
from hub.replication.planning.steps import Acl, ClusterSide, CreateTargetTopic
from hub.security import VARIABLE, ClusterConnection

log = logging.getLogger(__name__)

OWN_PARTITIONS = 8
_OWN: Mapping[str, tuple[int, Mapping[str, str]]] = {
    CHECKPOINTS_TOPIC: (OWN_PARTITIONS, CHECKPOINTS_CONFIG),
    MAP_TOPIC: (OWN_PARTITIONS, MAP_CONFIG),
    CONTROL_TOPIC: (1, CONTROL_CONFIG),
    STATUS_TOPIC: (1, STATUS_CONFIG),
}
_MOST_REPLICAS = 3
# Key in ``environ`` next to the environment's variables: the address of the hub's own server, with
# credentials.
OWN_REGISTRY = "hub.registry"
# The same for the hub's own brokers: a process is inside of the region whose cluster has such an address.
OWN_BOOTSTRAP = "hub.bootstrap"
_LARGEST_BATCH, _LARGEST_RECORD = "hub.largest_batch_mb", "hub.largest_record_mb"
REFUSED = "HUB-3012"


@dataclass
class ClusterHandle:
    """One cluster of the file. ``kafka`` is thread safe; ``access`` is for ``broker_client.BrokerCluster``
    and ``KafkaConnection``. ``names``: of its topics, where a link sees them by other names; ``plain``: the
    cluster by its own names then (renaming/renamed_cluster.py).
    """

    name: str
    kafka: KafkaCluster
    access: ClusterAccess
    registry: str | None = None
    names: TopicNames = EQUAL_NAMES
    plain: ClusterHandle | None = None

    @property
    def closed(self) -> bool:
        """Return whether this process may not connect, because it is outside of a closed region."""
        return isinstance(self.kafka, ClosedCluster)

    def check_open(self) -> None:
        """Raise PeerError (HUB-3623) where this process may not connect."""
        if isinstance(self.kafka, ClosedCluster):
            self.kafka.refuse()


def reach(
    file: MirrorsFile, name: str, environ: Mapping[str, str], folder: Path, timeout_s: float = 15.0
) -> ClusterHandle:
    """Create the clients of a cluster; connects to nothing yet. A closed cluster gets no clients outside of
    its region, where its secrets may be missing. Raises ConfigError: HUB-1602 for a secret that is not set,
    HUB-1603 for a file that cannot be read.
    """
    declared = file.clusters[name]
    if declared.closed and not share_address(declared.bootstrap, environ.get(OWN_BOOTSTRAP, "")):
        closed = ClosedCluster(name, declared.bootstrap)
        return ClusterHandle(name, closed, ClusterAccess(bootstrap=declared.bootstrap))
    how = connection(file, name, environ, folder)
    check_files(how, f'cluster "{name}": tls')
    security = how.librdkafka()
    bootstrap = security.pop("bootstrap.servers")
    registry = registry_of(name, declared.registry, environ)
    bounds = _bounds_in(environ)
    kafka = KafkaCluster(bootstrap, timeout_s, security, bounds=bounds)
    return ClusterHandle(name, kafka, access_of(how, bounds=bounds), registry)


def own_environ(settings: Settings) -> dict[str, str]:
    """Return the process's environment, with the hub's settings that mirrors use."""
    bounds = {
        _LARGEST_BATCH: str(settings.largest_batch_mb),
        _LARGEST_RECORD: str(settings.largest_record_mb),
    }
    own = {OWN_REGISTRY: settings.registry, OWN_BOOTSTRAP: settings.bootstrap}
    return {**os.environ, **own, **bounds}


def _bounds_in(environ: Mapping[str, str]) -> UnpackedBounds:
    batch, record = environ.get(_LARGEST_BATCH), environ.get(_LARGEST_RECORD)
    if batch is None or record is None:
        return DEFAULT_BOUNDS
    return UnpackedBounds(int(batch) * MIB, int(record) * MIB)


def registry_of(cluster: str, url: str | None, environ: Mapping[str, str]) -> str | None:
    """Return a registry's address with ``${NAME}`` filled in; for the hub's own server, with credentials.
    Raises ConfigError.
    """
    if url is None:
        return None
    own = environ.get(OWN_REGISTRY)
    if own is not None and without_credentials(own) == url.rstrip("/"):
        return own

    def filled(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise ConfigError(
                f'cluster "{cluster}": registry: the variable {found[1]} is not set',
                hint=f"set {found[1]}, or take ${{{found[1]}}} out of the address",
                code="HUB-1602",
            )
        return quote(environ[found[1]], safe="")

    return VARIABLE.sub(filled, url)


def reach_all(
    file: MirrorsFile, environ: Mapping[str, str], folder: Path, timeout_s: float = 15.0
) -> dict[str, ClusterHandle]:
    """Create the handles of all clusters that mirrors name."""
    wanted = {end for mirror in file.mirrors.values() for end in (mirror.source, mirror.target)}
    return {name: reach(file, name, environ, folder, timeout_s) for name in sorted(wanted)}


def closed_ends(link: Link, clusters: Mapping[str, ClusterHandle]) -> list[str]:
    """Return the ends of a link that this process may not connect to."""
    return [end for end in (link.source, link.target) if clusters[end].closed]


def share_address(bootstrap: str, other: str) -> bool:
    """Return whether two bootstrap lists have an address in common, and so are the same cluster."""
    return not set(bootstrap.split(",")).isdisjoint(other.split(","))


def name_by_address(file: MirrorsFile, own: KafkaCluster) -> str | None:
    """Return the file's name of our own cluster, matched by address; None: no address matches."""
    return next(
        (name for name, each in file.clusters.items() if share_address(each.bootstrap, own.bootstrap)), None
    )


def name_by_id(
    file: MirrorsFile, own: KafkaCluster, environ: Mapping[str, str], folder: Path, timeout_s: float
) -> tuple[str | None, Mapping[str, HubError]]:
    """Find the file's name of our own cluster by Kafka's cluster id. Returns (name or None, errors of the
    clusters asked before). Asks one cluster after the other, at most ``timeout_s`` each; not the closed ones,
    inside of which a process is by its address alone.
    """
    silent: dict[str, HubError] = {}
    for name in (name for name, each in file.clusters.items() if not each.closed):
        try:
            if reach(file, name, environ, folder, timeout_s).kafka.cluster_id() == own.cluster_id():
                return name, silent
        except HubError as error:
            silent[name] = error
    return None, silent


def access_of(
    how: ClusterConnection, client_id: str = "hub-mirror", bounds: UnpackedBounds = DEFAULT_BOUNDS
) -> ClusterAccess:
    """Return the settings of the hub's own protocol client for a connection."""
    tls, sasl = how.tls, how.sasl
    made = ClusterAccess(
        bootstrap=",".join(how.bootstrap), security_protocol=how.protocol, client_id=client_id, bounds=bounds
    )
    if tls is not None:
        made = replace(
            made,
            ssl_cafile=how.file(tls.ca),
            ssl_certfile=how.file(tls.certificate),
            ssl_keyfile=how.file(tls.key),
            ssl_key_password=how.secret(tls.key_password),
            ssl_check_hostname=tls.verify_hostname,
        )
    if sasl is not None:
        made = replace(
            made,
            sasl_mechanism=sasl.mechanism,
            username=sasl.username,
            password=how.secret(sasl.password),
            token=_tokens(how) if sasl.mechanism == "OAUTHBEARER" else None,
        )
    return made


def _tokens(how: ClusterConnection) -> Callable[[], str]:
    assert how.sasl is not None
    sasl = how.sasl
    return Tokens(
        sasl.token_url or "", sasl.client_id or "", how.secret(sasl.client_secret) or "", sasl.scope
    )


# ---- state for the planner


def topics_of(reached: ClusterHandle) -> dict[str, TopicDescription]:
    """Return the cluster's topics without their settings; ids as Kafka spells them (URL-safe base64)."""
    return {name: replace(each, topic_id=each.kafkas_id) for name, each in reached.kafka.topics().items()}


def side(reached: ClusterHandle, names: Iterable[str], *, rules: bool = True) -> ClusterSide:
    """Return the cluster as the planner needs it, without its registry: all topics; settings and ends of
    those in ``names``. A topic that the user may not describe is in ``refused``. ``rules`` False: ACLs are
    not read.

    Raises PeerError when the cluster does not answer.
    """
    kafka, every = reached.kafka, topics_of(reached)
    config, refused = _configs(kafka, sorted(set(names) & every.keys()))
    access = kafka.access_rules() if rules else frozenset[AccessRule]()
    wanted = sorted(config)
    return ClusterSide(
        {name: replace(each, config=config.get(name, {})) for name, each in every.items()},
        defaults=kafka.default_config(wanted or _example(every)),
        brokers=len(kafka.brokers()),
        begins=kafka.beginning_offsets(wanted),
        ends=kafka.end_offsets(wanted, committed=False),
        acls=frozenset(acl_of(rule) for rule in access or ()),
        checks_access=access is not None,
        refused=refused,
    )


def _configs(
    kafka: KafkaCluster, names: Sequence[str]
) -> tuple[dict[str, Mapping[str, str]], dict[str, str]]:
    """Return the settings of the topics that may be described, and the reason for each of the others, so that
    one topic does not block all.
    """
    try:
        return dict(kafka.topic_config(names)), {}
    except PeerError as error:
        if error.code != REFUSED:
            raise
    found: dict[str, Mapping[str, str]] = {}
    refused: dict[str, str] = {}
    for name in names:
        try:
            found |= kafka.topic_config([name])
        except PeerError as error:
            if error.code != REFUSED:
                raise
            refused[name] = error.message
    return found, refused


def _example(topics: Mapping[str, TopicDescription]) -> list[str]:
    """Return one topic from which to learn the brokers' defaults, when none of the wanted ones exists yet:
    one of the mirrors' own if possible, because their user may certainly describe it.
    """
    return sorted(topics, key=lambda name: (name not in _OWN, name))[:1]


def acl_of(rule: AccessRule) -> Acl:
    """Convert a rule. Raises ValueError for one on consumer groups, which mirrors neither read nor write."""
    if rule.resource == "GROUP":
        raise ValueError(f"a rule on consumer groups: {rule}")
    return Acl(
        rule.name, rule.pattern, rule.principal, rule.host, rule.operation, rule.permission, rule.resource
    )


def rule_of(acl: Acl) -> AccessRule:
    return AccessRule(
        acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission, acl.resource
    )


def own_topics(reached: ClusterHandle, names: Sequence[str] = tuple(_OWN)) -> list[CreateTargetTopic]:
    """Return the steps that create those of the mirrors' own topics that the cluster lacks."""
    there, replicas = reached.kafka.topics(), default_replicas(reached)
    return [
        CreateTargetTopic(name, _OWN[name][0], replicas, _OWN[name][1]) for name in names if name not in there
    ]


def default_replicas(reached: ClusterHandle) -> int:
    """Return the replication factor of the hub's own topics in a cluster."""
    return min(_MOST_REPLICAS, len(reached.kafka.brokers()))


def keep_short(reached: ClusterHandle) -> None:
    """Add missing settings to the mirrors' own topics that an earlier release created; existing settings
    stay. If the user may not alter them, the topics still work, but reading them takes longer. Raises
    PeerError when the cluster does not answer.
    """
    there = sorted(_OWN.keys() & reached.kafka.topics().keys())
    known, refused = _configs(reached.kafka, there)
    for name, config in known.items():
        unset = {key: value for key, value in _OWN[name][1].items() if key not in config}
        if not unset:
            continue
        try:
            reached.kafka.alter_config(name, unset)
        except HubError as error:
            refused[name] = error.message
    for name, why in refused.items():
        log.info('cluster "%s": topic "%s" keeps its settings: %s', reached.name, name, why)


def map_lag_ms(reached: ClusterHandle) -> int:
    """Return ``min.compaction.lag.ms`` of the map topic; 0 where it is not set or may not be read."""
    config, _ = _configs(reached.kafka, [MAP_TOPIC])
    return int(config.get(MAP_TOPIC, {}).get("min.compaction.lag.ms", 0))


# ---- records of mirrors
