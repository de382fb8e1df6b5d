"""[edge] Read ``mirrors.yaml``, with the variables that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from hub.errors import ConfigError, did_you_mean
from hub.replication.config.mirrors import ClusterConfig, Mirror, MirrorsFile
from hub.security import ClusterConnection, secret_value, secrets_of, variable_of
from hub.yaml import load_model, place


def load(path: Path) -> MirrorsFile:
    """Read the file and check the clusters that its mirrors name. Raises ConfigError with file, line and
    column.
    """
    file = load_model(path, MirrorsFile)
    for name, mirror in file.mirrors.items():
        for end, cluster in (("source", mirror.source), ("target", mirror.target)):
            if cluster not in file.clusters:
                raise ConfigError(
                    f'mirror "{name}": cluster "{cluster}" does not exist',
                    hint=did_you_mean(cluster, file.clusters, f"known: {', '.join(sorted(file.clusters))}"),
                    where=place(path, "mirrors", name, end),
                    code="HUB-1601",
                )
        for end, cluster in (("source", mirror.source), ("target", mirror.target)):
            if mirror.schema_ids == "rewrite" and file.clusters[cluster].registry is None:
                raise ConfigError(
                    f'mirror "{name}": schema_ids: rewrite needs a registry on both sides, and '
                    f'"{cluster}" has none',
                    hint=f"say `registry` of cluster {cluster}",
                    where=place(path, "mirrors", name, end),
                    code="HUB-1601",
                )
        if mirror.source == mirror.target:
            raise ConfigError(
                f'mirror "{name}": source and target are both "{mirror.source}"',
                hint="names stay the same, so a cluster cannot be mirrored into itself",
                where=place(path, "mirrors", name, "target"),
                code="HUB-1601",
            )
        if file.clusters[mirror.source].closed and file.clusters[mirror.target].closed:
            raise ConfigError(
                f'mirror "{name}": source and target are both closed, so no worker could reach both',
                hint="mirror through a cluster between them that is not closed: source -> hub -> target",
                where=place(path, "mirrors", name),
                code="HUB-1601",
            )
    return file


def connection(
    file: MirrorsFile, cluster: str, environ: Mapping[str, str], folder: Path = Path()
) -> ClusterConnection:
    """Return how to connect to a cluster of the file. Raises ConfigError (HUB-1602) naming the variable that
    is not set.
    """
    found = file.clusters[cluster]
    hint = "export {}=… where the workers run"
    secrets = secrets_of(found.tls, found.sasl, environ, f'cluster "{cluster}"', hint)
    return ClusterConnection(
        cluster, tuple(found.bootstrap.split(",")), found.tls, found.sasl, secrets, folder
    )


def principals_of(cluster: ClusterConfig) -> frozenset[str] | None:
    """Return the principals that the mirror's own user may have in a cluster; None: unknown, because a
    certificate alone identifies it and the cluster maps that to a name.
    """
    if cluster.sasl is None:
        own = cluster.tls is not None and cluster.tls.certificate is not None
        return None if own else frozenset({"User:ANONYMOUS"})
    found = {cluster.sasl.username, cluster.sasl.client_id} - {None}
    return frozenset(f"User:{each}" for each in found)


def certain_principals_of(cluster: ClusterConfig) -> frozenset[str] | None:
    """``principals_of`` without guesses: with OAUTHBEARER the user's name is a claim of the token, and may
    differ from the client's id.
    """
    by_token = cluster.sasl is not None and cluster.sasl.mechanism == "OAUTHBEARER"
    return None if by_token else principals_of(cluster)


def mask_secrets(file: MirrorsFile, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of hashes by their references. Raises ConfigError (HUB-1602) naming the variable that
    is not set.
    """
    found: dict[str, str] = {}
    for name, mirror in file.mirrors.items():
        for rule in mirror.mask:
            if rule.key is None:
                continue
            hint = "export {}=… where the workers run, the same everywhere"
            found[rule.key] = secret_value(rule.key, environ, f'mirror "{name}": key of a mask', hint)
    return found


def mask_keys(mirror: Mirror, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of a mirror's hashes that are in the environment, by their references."""
    return present_keys((rule.key for rule in mirror.mask if rule.key is not None), environ)


def present_keys(references: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values of references that are set in the environment."""
    return {key: value for key in set(references) if (value := environ.get(variable_of(key)))}
