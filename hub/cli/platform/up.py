"""[edge] ``hub up`` and ``hub down``: the processes of a running hub, started in order, supervised, stopped
in order.

::

    kafka ──▶ server ──▶ prepare (the demo's topics and schemas) ──▶ applier ──▶ materializer ──▶ auditor
                                                                          (──▶ mirror, where there is a mirrors.yaml)
                                                                          (──▶ outbox, where hub.yaml has outbox_database)
                                                                          (──▶ connect, where there is a connectors.yaml)
                                                                          (──▶ lake, where a topic has lake: true)
                                                                          (──▶ sinks, where there is a sinks.yaml)
"""  # noqa: E501

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException
from pathlib import Path
from typing import Annotated

import typer

from hub.cli.context import environment_of, load_settings, open_home, where_to_find
from hub.cli.platform.access import check_closed
from hub.cli.platform.upgrade import require_local_formats, require_topic_formats, warn_of_deprecations
from hub.cli.terminal.output import download_bar, note
from hub.config import Settings
from hub.connectors.plugins import fetch_plugins
from hub.connectors.worker import ConnectWorker
from hub.embedded import KafkaNode, check_disk, check_memory, check_port, ensure_jars, find_java, make_archive
from hub.embedded.class_archive import has_archive
from hub.embedded.kafka_node import answers_api_versions
from hub.errors import ConfigError, HubError, PeerError
from hub.runtime import install_stop_signals
from hub.sandbox.launch import probed_platform
from hub.sandbox.platforms import gaps
from hub.supervisor import Child, RunningHub, Supervisor, check_unused, end, last_line, running_hub, stop_hub
from hub.topics.tree.tree import LiveTree

_STOPPED_S = 60.0
CHECK_S = 5.0


def start(
    settings: Settings,
    stop: threading.Event,
    prepare: Callable[[], None] | None = None,
    say: Callable[[str], None] = note,
) -> Supervisor:
    """Start every process of the hub and wait until each does its work; the caller then calls ``run`` and
    ``stop``.

    A process that is not ready within ``start_timeout_s`` is left to start on while the others run.
    ``prepare`` runs when Kafka and the server answer, however long that takes, and nothing reads yet: the
    place to apply topics and register schemas. Call from the main thread, after ``make_ready``. What was
    started is stopped again when this raises: Conflict (this home runs already), HubError (nothing to start a
    process with, or ``prepare`` failed), KeyboardInterrupt (``stop`` was set).
    """
    open_home(settings)
    supervisor = Supervisor(settings.home, say, where_to_find(settings))
    try:
        began_at = time.monotonic()
        for child in children(settings):
            if child.name == "applier" and prepare is not None:
                supervisor.wait_for_missing(stop)
                prepare()
            if child.name == "server":  # Kafka answers, and nothing has written to it
                require_topic_formats(settings)
            _start_one(supervisor, child, stop, say)
        if supervisor.missing:
            say(
                f"Running without {', '.join(sorted(supervisor.missing))}, which is still starting. Check "
                "it with hub doctor."
            )
        else:
            say(f"All processes run, after {time.monotonic() - began_at:.1f} s.")
    except BaseException as error:
        supervisor.stop()
        # A terminal's Ctrl-C also ends the child programs, so their failure is expected.
        if stop.is_set() and isinstance(error, HubError):
            raise KeyboardInterrupt from error
        raise
    return supervisor


def make_ready(settings: Settings) -> None:
    """Check what a start needs of this machine, and fetch what is missing. Nothing runs yet, and stop signals
    are not handled yet: Ctrl-C ends a download at once.

    Raises ConfigError (access, Java, ports, memory, disk, formats of the state), PeerError (HUB-3018,
    HUB-3016), HubFault (HUB-5010).
    """
    if running_hub(settings.home) is None:
        require_local_formats(settings)
    check_machine(settings)
    warn_of_deprecations(settings.project)
    warn_of_python(settings)
    check_kafka(settings)
    fetch_jars(settings)


def warn_of_python(settings: Settings) -> None:
    """Print what the sandbox of Python functions does not enforce on this machine."""
    if settings.transforms == "sandboxed":
        for gap in gaps(probed_platform()):
            note(f"! Sandbox of Python functions, rule {gap.rule}: {gap.text}")


def check_machine(settings: Settings) -> None:
    """Raise one clear ConfigError for the first thing the machine lacks, before anything is started."""
    if running_hub(settings.home) is not None:
        return  # the hub uses its own ports; the supervisor names the running hub
    check_closed(settings)
    check_memory()
    check_disk(settings.home)
    way_out = "stop it, or take another port: --port N, or HUB_HTTP_PORT=N"
    check_port(settings.http_host, settings.http_port, "the hub's server", way_out)
    if settings.pgwire_port:
        host = settings.pgwire_host or settings.http_host
        check_port(host, settings.pgwire_port, "Postgres' protocol", "stop it, or set another pgwire_port")
    if settings.embedded_kafka:
        KafkaNode(settings).check_ports()
    if settings.runs_connect:
        ConnectWorker(settings).check_ports()


def check_kafka(settings: Settings) -> None:
    """Check that a Kafka which is not the hub's own accepts the connection. Its clients wait for a Kafka that
    is not up yet.

    Raises ConfigError for a secret or a file that is missing, PeerError (HUB-3016) with the reason.
    """
    if settings.embedded_kafka:
        return
    from hub.kafka import own_cluster

    own_cluster(settings, CHECK_S).check_door()


def fetch_jars(settings: Settings) -> None:
    """Fetch missing locked jars with a progress bar, then prepare Spark's quick start."""
    find_java(settings)
    with download_bar("Fetching Kafka and Spark's connectors") as progress:
        jars = ensure_jars(settings, progress=progress)
        if settings.runs_connect:
            fetch_plugins(settings, progress)
    if not has_archive(settings, jars["spark"]):
        note("Preparing Spark for quick starts (once, about 30 s) ...")
        if not make_archive(settings, jars["spark"]):
            note("  that did not work: Spark starts as slowly as always, and the next start tries again")


# The second materializer, whichever of the two computes.
STANDBY = "standby"


def children(settings: Settings) -> list[Child]:
    """Return the processes of a hub in their start order; all get the same settings."""
    environment = environment_of(settings)

    limit_s = settings.start_timeout_s

    def own(command: str, name: str, ready: Callable[[], bool] = lambda: True) -> Child:
        line = [sys.executable, "-m", "hub.cli", *command.split()]
        return Child(name, lambda: line, ready, environment, limit_s)

    node = KafkaNode(settings)
    kafka = (
        [Child("kafka", node.prepare, node.ready, ready_timeout_s=limit_s)] if settings.embedded_kafka else []
    )
    server = own("serve", "server", lambda: answers_health(settings.url))
    views = [own("apply-changelogs", "applier"), own("materialize", "materializer")]
    if settings.standby_materializer:
        views.append(own(f"materialize --name {STANDBY}", STANDBY))
    mirrors = (
        [own("mirror run", "mirror")] if (settings.project.expanduser() / "mirrors.yaml").exists() else []
    )
    outbox = [own("outbox relay", "outbox")] if settings.outbox_database else []
    worker = ConnectWorker(settings)
    connect = (
        [Child("connect", worker.prepare, worker.ready, ready_timeout_s=limit_s)]
        if settings.runs_connect
        else []
    )
    tree = LiveTree(settings.project.expanduser() / "topics.yaml")
    lake = [own("lake run", "lake")] if any(topic.lake for topic in tree.topics().values()) else []
    sinks = [own("sink run", "sinks")] if (settings.project.expanduser() / "sinks.yaml").exists() else []
    auditor = own("check-conformance", "auditor")
    return [*kafka, server, *views, auditor, *mirrors, *outbox, *connect, *lake, *sinks]


def answers_health(base_url: str) -> bool:
    """True when the server at this address answers that it is up."""
    try:
        with urllib.request.urlopen(f"{base_url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (OSError, HTTPException):
        return False


def _start_one(
    supervisor: Supervisor, child: Child, stop: threading.Event, say: Callable[[str], None]
) -> None:
    began_at = time.monotonic()
    if supervisor.start(child, stop):
        say(f"  {child.name:<13} up after {time.monotonic() - began_at:.1f} s")


def up(
    detach: Annotated[bool, typer.Option(help="Return when everything runs; stop with: hub down")] = False,
    port: Annotated[int | None, typer.Option(help="Port of the server. Default: 8088")] = None,
    kafka_port: Annotated[int | None, typer.Option(help="Port of the embedded Kafka. Default: 9092")] = None,
) -> None:
    """Start Kafka, the server, the applier, the materializer and the auditor; Ctrl-C stops them all.

    If the project has a mirrors.yaml, it also starts a worker of its mirrors, and with a connectors.yaml one
    of Kafka Connect. To use your own Kafka, set embedded_kafka: false, bootstrap, and tls and sasl if
    required, in hub.yaml (docs/how-to/connect-a-secured-kafka.md).

    Example: hub up --detach
    """
    settings = load_settings(http_port=port, kafka_port=kafka_port)
    if detach:
        start_detached(settings)
        return
    make_ready(settings)
    stop = install_stop_signals()
    supervisor = start(settings, stop)
    try:
        note(f"Dashboard, registry and queries: {settings.url}/")
        if settings.pgwire_port:
            host = settings.pgwire_host or settings.http_host
            note(f"SQL tools: postgresql://USER@{host}:{settings.pgwire_port}/hub")
        note(f"Kafka: {settings.bootstrap}   State and logs: {settings.home}   Stop: Ctrl-C")
        supervisor.run(stop)
    finally:
        supervisor.stop()


def down() -> None:
    """Stop all processes that up or demo started in this home folder, and no others.

    Example: hub down
    """
    settings = load_settings()
    stopped = stop_hub(settings.home)
    if stopped:
        note(f"Stopped: {', '.join(stopped)}.")
    else:
        note(f"No hub runs on {settings.home.absolute()}. One of another home: hub --home FOLDER down")


def start_detached(settings: Settings) -> None:
    """Start ``hub up`` as a process of its own, show its progress, and wait until it reports that all
    processes run. Raises Conflict (HUB-1920) before it touches the log of a hub that runs on this home, and
    PeerError (HUB-3019) when a process is missing; the others keep running.
    """
    check_unused(settings.home)
    make_ready(settings)
    log = settings.logs / "hub.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "hub.cli", "up"],
            env={**os.environ, **environment_of(settings)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    deadline = time.monotonic() + settings.start_timeout_s * (len(children(settings)) + 1)
    shown = 0
    try:
        while time.monotonic() < deadline:
            hub = running_hub(settings.home)
            shown = show_progress(log, shown)
            if is_ready(hub, process.pid):
                note(f"Runs (pid {process.pid}): {settings.url}/   Stop: hub down")
                return
            if hub is not None and hub.missing:
                break
            if process.poll() is not None:
                errors = [line for line in log.read_text().splitlines() if line.startswith(("Error", "Hint"))]
                raise ConfigError(
                    "\n".join(errors) or last_line(log), hint=f"the log: {log}", code="HUB-1123"
                )
            time.sleep(0.1)
    except KeyboardInterrupt:
        note("Stopping all started processes ...")  # a session of its own: no Ctrl-C reaches it
        end(process, _STOPPED_S)
        raise
    without = (
        f"runs without {', '.join(hub.missing)}" if hub is not None and hub.missing else "is not ready yet"
    )
    raise PeerError(
        f"the hub {without} (pid {process.pid})",
        hint=f"it continues to start; check it with hub doctor, stop it with hub down; its log: {log}",
        code="HUB-3019",
    )


def show_progress(log: Path, shown: int) -> int:
    """Print the lines of the log that say what is waited for, from byte ``shown`` on;
    returns where it ends."""
    with log.open("rb") as file:
        file.seek(shown)
        *lines, rest = file.read().split(b"\n")
        for line in lines:
            if b" starting for " in line or b" is not ready after " in line:
                note(line.decode(errors="replace"))
        return file.tell() - len(rest)


def is_ready(hub: RunningHub | None, pid: int) -> bool:
    """Return whether process ``pid`` is the hub's supervisor,
    not one started on this home at the same time."""
    supervisor = hub.processes.get("supervisor") if hub is not None and hub.healthy else None
    return supervisor is not None and supervisor.pid == pid


def kafka_answers(settings: Settings) -> bool:
    """Return whether a Kafka broker answers at the first bootstrap address, even if it refuses the client."""
    host, _, port = settings.bootstrap.split(",")[0].rpartition(":")
    return answers_api_versions(host, int(port))
