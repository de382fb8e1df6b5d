"""[edge] ``hub doctor``: every thing the hub needs, one line each, with the way out where it lacks."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum

import psutil
import typer

from hub.access.access_yaml import ACCESS_FILE, load_access
from hub.cli.context import load_settings
from hub.cli.platform.access import open_to_others
from hub.cli.platform.up import CHECK_S, answers_health, kafka_answers
from hub.cli.terminal.output import Output, OutputOption, show
from hub.cli.terminal.versions import versions
from hub.config import Settings, without_credentials
from hub.embedded import KafkaNode, check_disk, check_memory, check_port, ensure_jars, find_java
from hub.embedded.jars import missing_jars
from hub.errors import HubError, PeerError
from hub.formats.deprecations import deprecated_keys
from hub.home_key import read_key
from hub.observability.overview.contact_watch import is_cut_off, message_of, worst
from hub.outbox.note import read_note
from hub.outbox.relay_state import relay_state
from hub.sandbox.launch import probed_platform
from hub.sandbox.platforms import python_of_views
from hub.schema_registry.client.registry_client import RegistryClient
from hub.supervisor import running_hub
from hub.times import epoch_ms


class CheckResult(StrEnum):
    """``off``: the hub does not run, so there is nothing to check.
    ``warn``: it works, and should not stay so."""

    ok = "OK"
    warn = "WARN"
    fail = "FAIL"
    off = "off"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    check: str
    verdict: CheckResult
    found: str
    fix: str = ""


_SHOWN_RIGHTS = 5
_SHOWN_ERRORS = 5

Check = Callable[[Settings], Finding]


def doctor(output: OutputOption = Output.table) -> None:
    """Check Java, jars, memory, the sandbox of Python functions, disk, ports, Kafka and the rights there,
    server, registry, access.yaml, the identity provider, alerts.yaml, Kafka Connect and the outbox.
    Exit code 1 when one fails.

    Example: hub doctor -o json
    """
    settings = load_settings()
    findings = examine(settings)
    show([asdict(finding) for finding in findings], output)
    if any(finding.verdict is CheckResult.fail for finding in findings):
        raise typer.Exit(1)


def examine(settings: Settings) -> list[Finding]:
    """Run every check and return the findings; a HubError in a check is its finding."""
    findings = []
    for name, check in CHECKS.items():
        try:
            findings.append(check(settings))
        except HubError as error:
            findings.append(Finding(name, CheckResult.fail, error.message, error.hint or ""))
    return findings


def _versions(_settings: Settings) -> Finding:
    found = ", ".join(f"{name} {version}" for name, version in versions().items())
    return Finding("versions", CheckResult.ok, found)


def _deprecations(settings: Settings) -> Finding:
    found = deprecated_keys(settings.project.expanduser())
    if not found:
        return Finding("deprecations", CheckResult.ok, "no deprecated keys in the project's files")
    shown = "; ".join(map(str, found[:_SHOWN_ERRORS]))
    return Finding(
        "deprecations", CheckResult.warn, f"{len(found)}: {shown}", "hub upgrade --check lists all"
    )


def _java(settings: Settings) -> Finding:
    java = find_java(settings)
    return Finding("java", CheckResult.ok, f"{java.version} at {java.path} ({java.source})")


def _jars(settings: Settings) -> Finding:
    missing = missing_jars(settings)
    if missing:
        size_mb = sum(jar.size for jar in missing) / 1e6
        return Finding(
            "jars",
            CheckResult.off,
            f"{len(missing)} not fetched yet ({size_mb:.0f} MB): the first start does",
        )
    count = sum(map(len, ensure_jars(settings).values()))
    return Finding("jars", CheckResult.ok, f"{count} jars, every checksum as locked")


def _memory(_settings: Settings) -> Finding:
    check_memory()
    return Finding("memory", CheckResult.ok, f"{psutil.virtual_memory().available / 1e9:.1f} GB available")


def _python(settings: Settings) -> Finding:
    found = python_of_views(settings.transforms, probed_platform())
    fix = "; ".join(each.text for each in found.gaps) or "transforms: sandboxed in hub.yaml"
    verdict = CheckResult.ok if found.is_complete else CheckResult.warn
    return Finding("python", verdict, found.text, "" if found.is_complete else fix)


def _disk(settings: Settings) -> Finding:
    check_disk(settings.home)
    existing = next(
        path for path in (settings.home.absolute(), *settings.home.absolute().parents) if path.exists()
    )
    return Finding(
        "disk", CheckResult.ok, f"{shutil.disk_usage(existing).free / 1e9:.0f} GB free under {existing}"
    )


def _processes(settings: Settings) -> Finding:
    hub = running_hub(settings.home)
    if hub is None:
        return Finding("processes", CheckResult.off, f"no hub runs on {settings.home}", "hub up")
    if hub.missing:
        fix = f"it is tried on; see {settings.logs}/<name>.log"
        return Finding("processes", CheckResult.fail, f"not ready yet: {', '.join(hub.missing)}", fix)
    if not hub.healthy:
        return Finding("processes", CheckResult.ok, "the hub is starting or stopping")
    names = ", ".join(f"{name} {process.pid}" for name, process in hub.processes.items())
    expected = {"supervisor", "server", "applier", "materializer", "auditor"} | (
        {"kafka"} if settings.embedded_kafka else set()
    )
    if missing := expected - set(hub.processes):
        return Finding(
            "processes",
            CheckResult.fail,
            f"not running: {', '.join(sorted(missing))}",
            f"see {settings.logs}/<name>.log",
        )
    return Finding("processes", CheckResult.ok, names)


def _ports(settings: Settings) -> Finding:
    if running_hub(settings.home) is not None:
        return Finding("ports", CheckResult.ok, "in use by this hub")
    check_port(settings.http_host, settings.http_port, "the hub's server", "take another: HUB_HTTP_PORT=N")
    if settings.pgwire_port:
        host = settings.pgwire_host or settings.http_host
        check_port(host, settings.pgwire_port, "Postgres' protocol", "take another: HUB_PGWIRE_PORT=N")
    if settings.embedded_kafka:
        KafkaNode(settings).check_ports()
    return Finding("ports", CheckResult.ok, "free")


def _kafka(settings: Settings) -> Finding:
    if not settings.embedded_kafka:
        return _their_kafka(settings)
    if kafka_answers(settings):
        return Finding("kafka", CheckResult.ok, f"answers at {settings.bootstrap}")
    return _silent("kafka", settings, settings.bootstrap, f"see {settings.logs / 'kafka.log'}")


def _their_kafka(settings: Settings) -> Finding:
    from hub.kafka import own_cluster, own_connection

    connection = own_connection(settings)
    cluster = own_cluster(settings, CHECK_S)
    cluster.check_door()  # a HubError is this check's finding
    count = len(cluster.brokers())
    sasl = connection.sasl
    who = "" if sasl is None else f" as {sasl.username or sasl.client_id}, {sasl.mechanism}"
    brokers = "1 broker" if count == 1 else f"{count} brokers"
    found = f"{brokers} at {settings.bootstrap}, {connection.protocol}{who}"
    if sasl is not None and connection.tls is None and sasl.mechanism in ("PLAIN", "OAUTHBEARER"):
        return Finding(
            "kafka",
            CheckResult.warn,
            f"{found}: everyone with access to the network can read the "
            f"{'password' if sasl.mechanism == 'PLAIN' else 'token'}",
            "tls in hub.yaml, where the brokers have a listener with TLS "
            "(docs/how-to/connect-a-secured-kafka.md)",
        )
    return Finding("kafka", CheckResult.ok, found)


def _contact(settings: Settings) -> Finding:
    """Check which of the hub's processes on this machine Kafka answers."""
    from hub.kafka.contact.notes import notes

    found = notes(settings.home, epoch_ms())
    cut_off = [each for note in found for each in [worst(note)] if is_cut_off(each)]
    if cut_off:
        reasons = "; ".join(message_of(each) for each in cut_off)
        fix = (
            "each tries a fresh client every 2 s and resumes by itself; check that Kafka works and that "
            "advertised.listeners leads to it"
        )
        return Finding("contact", CheckResult.fail, reasons, fix)
    if not found:
        return Finding("contact", CheckResult.off, f"no process of the hub runs on {settings.home}", "hub up")
    return Finding("contact", CheckResult.ok, f"Kafka answers {', '.join(note.process for note in found)}")


def _rights(settings: Settings) -> Finding:
    """Check the rights on the hub's existing topics. Brokers do not report rights on names that do not exist
    yet.
    """
    if settings.embedded_kafka:
        return Finding("rights", CheckResult.off, "the embedded Kafka lets everybody do everything")
    from hub.kafka import own_cluster

    missing = missing_rights(own_cluster(settings, CHECK_S).rights_on())
    if missing:
        more = f", and {len(missing) - _SHOWN_RIGHTS} more" if len(missing) > _SHOWN_RIGHTS else ""
        names = ", ".join(missing[:_SHOWN_RIGHTS]) + more
        return Finding(
            "rights",
            CheckResult.fail,
            f"missing: {names}",
            "docs/how-to/connect-a-secured-kafka.md lists what the hub needs",
        )
    return Finding("rights", CheckResult.ok, "on all of the hub's own topics that are there")


def missing_rights(found: Mapping[str, frozenset[str]]) -> list[str]:
    """Return the rights that the hub lacks on its own topics and on views' changelogs, as texts.

    >>> missing_rights({"_schemas": frozenset({"READ", "DESCRIBE"}), "shop.orders": frozenset()})
    ['Write on topic "_schemas"']
    """
    prefixes = ("_schemas", "_dek_registry_keys", "_hub.", "views.")
    own = {name: rights for name, rights in found.items() if name.startswith(prefixes)}
    return [
        f'{right.title()} on topic "{name}"'
        for name, rights in sorted(own.items())
        for right in ("READ", "WRITE")
        if right not in rights
    ]


def _server(settings: Settings) -> Finding:
    if answers_health(settings.url):
        return Finding("server", CheckResult.ok, f"answers at {settings.url}")
    return _silent("server", settings, settings.url, f"see {settings.logs / 'server.log'}")


def _registry(settings: Settings) -> Finding:
    try:
        subjects = RegistryClient(settings.registry, 5.0).subjects()
    except PeerError:
        address = without_credentials(settings.registry)
        return _silent("registry", settings, address, f"see {settings.logs / 'server.log'}")
    return Finding("registry", CheckResult.ok, f"{len(subjects)} subjects")


def check_access(settings: Settings) -> Finding:
    path = settings.project / ACCESS_FILE
    if open_to_others(settings):
        return Finding(
            "access",
            CheckResult.warn,
            f"everybody who reaches {settings.http_host}:{settings.http_port} may do everything",
            f"write {path} (docs/how-to/control-access.md), or bind to 127.0.0.1: http_host",
        )
    if not path.exists():
        if settings.require_access:
            return Finding(
                "access",
                CheckResult.fail,
                f"{path} does not exist: access is refused to everybody",
                "docs/how-to/control-access.md",
            )
        return Finding(
            "access", CheckResult.ok, f"not controlled; only this machine reaches {settings.http_host}"
        )
    file = load_access(path)  # a HubError is this check's finding
    read_key(settings.home)
    people = f"{len(file.users)} users, {len(file.tokens)} tokens, {len(file.groups)} groups"
    return Finding("access", CheckResult.ok, f"{people}; anonymous: {len(file.anonymous)} grants")


def _identity(settings: Settings) -> Finding:
    """Check that the identity provider answers with its addresses and keys."""
    path = settings.project / ACCESS_FILE
    oidc = load_access(path).oidc if path.exists() else None
    if oidc is None:
        return Finding("identity", CheckResult.off, "access.yaml names no identity provider (oidc)")
    from hub.access.oidc.provider_keys import Provider, client_secret

    client_secret(oidc)
    asyncio.run(Provider(oidc, path.parent).endpoints())  # a HubError is this check's finding
    return Finding("identity", CheckResult.ok, f"{oidc.issuer} answers with its keys")


def _alerts(settings: Settings) -> Finding:
    """Check alerts.yaml and alerts/*.yaml, as the server reads them."""
    from hub.alerts.config.alerts_yaml import ALERTS_FILE
    from hub.alerts.config.live_config import LiveAlerts

    live = LiveAlerts(settings.project)
    live.refresh()
    if complaints := live.complaints():
        more = f"; and {len(complaints) - _SHOWN_ERRORS} more" if len(complaints) > _SHOWN_ERRORS else ""
        errors = "; ".join(complaints[:_SHOWN_ERRORS]) + more
        return Finding("alerts", CheckResult.fail, errors, "docs/runbooks/alerts-file.md")
    if not settings.alerts:
        return Finding("alerts", CheckResult.off, "alerts: false: another server of the hub watches")
    path = settings.project / ALERTS_FILE
    if not live.file.channels:
        return Finding(
            "alerts",
            CheckResult.off,
            "nobody is notified",
            f"name channels in {path} (docs/how-to/set-up-alerts.md)",
        )
    return Finding("alerts", CheckResult.ok, f"channels: {', '.join(live.file.channels)}")


def _connect(settings: Settings) -> Finding:
    if not settings.connect_workers:
        return Finding(
            "connect", CheckResult.off, "no worker of Kafka Connect is named", "connect_urls in hub.yaml"
        )
    from hub.observability.cluster.connect import ConnectState
    from hub.observability.cluster.connect_workers import ask

    answers = [ask(url) for url in settings.connect_workers]
    connectors = {one.name: one for each in answers for one in each}
    failed = sorted(name for name, one in connectors.items() if one.state is ConnectState.FAILED)
    if failed:
        first = connectors[failed[0]]
        summary = f"{len(failed)} of {len(connectors)} connectors failed, first {first.name}: {first.reason}"
        return Finding("connect", CheckResult.fail, summary, "docs/runbooks/connect-failed.md")
    return Finding("connect", CheckResult.ok, f"{len(answers)} workers answer, {len(connectors)} connectors")


def _outbox(settings: Settings) -> Finding:
    """Check the outbox's relay of this home by its last report."""
    declared = settings.outbox_database is not None
    relay = relay_state(read_note(settings.home, epoch_ms()), declared=declared)
    if relay.state == "off" or (relay.state == "unknown" and running_hub(settings.home) is None):
        return Finding("outbox", CheckResult.off, relay.found)
    verdicts = {"failing": CheckResult.fail, "unknown": CheckResult.fail, "refused": CheckResult.warn}
    verdict = verdicts.get(relay.state, CheckResult.ok)
    fix = "" if verdict is CheckResult.ok else "hub outbox status; docs/runbooks/outbox-stopped.md"
    return Finding("outbox", verdict, relay.found, fix)


def _silent(check: str, settings: Settings, address: str, fix: str) -> Finding:
    """Return the finding for a server that does not answer: a failure only if the hub is recorded as running,
    or if the peer is not the hub's own.
    """
    if running_hub(settings.home) is None and settings.embedded_kafka:
        return Finding(check, CheckResult.off, f"nothing answers at {address}", "hub up")
    return Finding(check, CheckResult.fail, f"nothing answers at {address}", fix)


CHECKS: dict[str, Check] = {
    "versions": _versions,
    "deprecations": _deprecations,
    "java": _java,
    "jars": _jars,
    "memory": _memory,
    "python": _python,
    "disk": _disk,
    "processes": _processes,
    "ports": _ports,
    "kafka": _kafka,
    "contact": _contact,
    "rights": _rights,
    "server": _server,
    "registry": _registry,
    "access": check_access,
    "identity": _identity,
    "alerts": _alerts,
    "connect": _connect,
    "outbox": _outbox,
}
