"""[edge] ``hub demo``: everything started with sample data, from nothing to live rows, on one terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings
from hub.cli.terminal.output import note
from hub.config import Settings
from hub.errors import ConfigError, HubError
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.demo.customers import DemoEvent
    from hub.demo.feeder import Feeder
    from hub.kafka import KafkaCluster
    from hub.schema_registry.client.registry_client import RegistryClient

# Within the package if installed, else in the repository.
_INSTALLED = Path(__file__).resolve().parents[2] / "demo" / "examples"
EXAMPLES = _INSTALLED if _INSTALLED.is_dir() else Path(__file__).resolve().parents[3] / "examples"
_PROGRESS_EVERY_S = 10.0

app = typer.Typer(
    help="Start everything with sample data, and watch live events become a view.",
    invoke_without_command=True,
    rich_markup_mode=None,
    epilog="Examples: hub demo; hub demo --customers 500 --rate 20; hub demo flights; hub "
    "demo flights --speed 3600",
)

PortOption = Annotated[int | None, typer.Option(help="Port of the server. Default: 8088")]
KafkaPortOption = Annotated[int | None, typer.Option(help="Port of the embedded Kafka. Default: 9092")]


@app.callback()
def demo(
    context: typer.Context,
    customers: Annotated[int, typer.Option(min=1, help="How many customers")] = 2_000,
    events: Annotated[int, typer.Option(min=0, help="How many events to begin with")] = 30_000,
    rate: Annotated[float, typer.Option(min=0.1, help="Live events a second after that")] = 5.0,
    seed: Annotated[int, typer.Option(help="Another seed, another shop")] = 7,
    port: PortOption = None,
    kafka_port: KafkaPortOption = None,
) -> None:
    """Turn seven systems of a shop into the live view customer_360. Ctrl-C stops everything; the next
    start continues."""
    if context.invoked_subcommand is not None:
        return
    from hub.demo import customers as shop
    from hub.demo import feeder

    def feed(fed: Feeder, stop: threading.Event) -> Iterator[None]:
        stream = feeder.shop(fed, seed, customers, events)
        load_events(
            fed, islice(stream, max(events, 1)), max(events, 1), "Loading events of seven systems", stop
        )
        yield
        feeder.trickle(fed, stream.at(epoch_ms), rate, stop)

    run_demo(
        "customer-360",
        "customer_360",
        shop.TOPICS,
        feed,
        port,
        kafka_port,
        f"{rate:g} events a second continue to arrive.",
    )


@app.command()
def flights(
    speed: Annotated[
        float | None,
        typer.Option(min=0.001, help="Times real time, such as 3600: an hour a second. Default: at once"),
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Events at most")] = None,
    port: PortOption = None,
    kafka_port: KafkaPortOption = None,
) -> None:
    """Turn a year of real flights (New York, 2013) into the view aircraft_360.

    Example: hub demo flights --speed 3600
    """
    from hub.demo import feeder
    from hub.demo import flights as year

    folder = year.data_folder()
    total = limit or year.FLIGHTS + 26_115 + 3_322 + 16
    topics = [
        f"nyc.{airport.lower()}.{kind}" for airport in year.AIRPORTS for kind in ("departures", "weather")
    ]

    def feed(fed: Feeder, stop: threading.Event) -> Iterator[None]:
        events = islice(year.events(folder), limit)
        if speed is None:
            load_events(fed, events, total, "Loading a year of flights", stop)
            yield
            return
        load_events(fed, islice(events, 3_338), 3_338, "Loading planes and airlines", stop)
        yield
        feeder.replay(fed, events, speed, stop)

    replay = "The year is replayed." if speed else "The whole year is in the log."
    run_demo("flights", "aircraft_360", [*topics, year.PLANES, year.AIRLINES], feed, port, kafka_port, replay)


def run_demo(
    example: str,
    view: str,
    topics: Iterable[str],
    feed: Callable[[Feeder, threading.Event], Iterator[None]],
    port: int | None,
    kafka_port: int | None,
    replay: str,
) -> None:
    from hub.cli.platform.up import make_ready, start
    from hub.demo.feeder import PATIENCE_S, Feeder
    from hub.runtime import install_stop_signals
    from hub.topics.gateway.producer import Publisher

    project = EXAMPLES / example
    if not project.is_dir():
        raise ConfigError(
            f'folder "{project}" does not exist', hint="run the demo from a clone of the repository"
        )
    settings = load_settings(project=project, http_port=port, kafka_port=kafka_port)
    make_ready(settings)
    stop = install_stop_signals()
    began_at = time.monotonic()
    try:
        supervisor = start(settings, stop, prepare=lambda: _prepare(settings))
        feeding: threading.Thread | None = None
        try:
            cluster, registry = _connect(settings)
            publisher = Publisher(cluster, registry, linger_ms=5, delivery_timeout_s=PATIENCE_S)
            steps = feed(Feeder(cluster, publisher, topics), stop)
            next(steps, None)
            key = await_first_row(settings, view, stop, supervisor.step)
            _greet(settings, view, key, time.monotonic() - began_at, replay)
            feeding = threading.Thread(target=_rest, args=(steps, stop), name="feeder", daemon=True)
            feeding.start()
            supervisor.run(stop)
        finally:
            stop.set()
            if feeding is not None:
                feeding.join(5.0)
            supervisor.stop()
    except KeyboardInterrupt:
        note("Stopped before the first rows; the next start continues from there.")
        raise


def _rest(steps: Iterator[None], stop: threading.Event) -> None:
    """Run the feeder's thread. An error is reported and ends it; the next start continues with the remaining
    events.
    """
    try:
        for _ in steps:
            pass
    except HubError as error:
        if not stop.is_set():
            note(f"No more sample events: {error.message}. The next start continues where they stopped.")


def _prepare(settings: Settings) -> None:
    from hub.topics.tree.apply_plan import apply, make_plan
    from hub.topics.tree.tree import load

    cluster, registry = _connect(settings)
    steps = make_plan(load(settings.project / "topics.yaml", settings.replication_factor), cluster, registry)
    apply(steps, cluster, registry)
    if steps.steps:
        note(f"  topics        {len(steps.steps)} changes applied from {settings.project / 'topics.yaml'}")


def _connect(settings: Settings) -> tuple[KafkaCluster, RegistryClient]:
    from hub.kafka import own_cluster
    from hub.schema_registry.client.registry_client import RegistryClient

    return own_cluster(settings), RegistryClient(settings.registry)


def load_events(
    fed: Feeder, events: Iterable[DemoEvent], total: int, what: str, stop: threading.Event
) -> None:
    """Load the events. Raises KeyboardInterrupt when ``stop`` is set before all are sent; events sent by then
    stay.
    """
    from hub.demo.feeder import load

    with _bar(what, total) as advance:
        new = load(fed, takewhile(lambda _: not stop.is_set(), events), advance)
    if stop.is_set():
        raise KeyboardInterrupt
    note(
        f"  events        {new:,} new, {fed.number - new:,} were there"
        if new
        else "  events        all there already"
    )


@contextmanager
def _bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty()
    ) as bar:
        task = bar.add_task(what, total=total)
        yield lambda count: bar.update(task, completed=count)


def await_first_row(settings: Settings, view: str, stop: threading.Event, step: Callable[[], None]) -> str:
    """Wait for the view's first row and return its key; prints its progress every ten seconds.
    Raises KeyboardInterrupt when ``stop`` is set before.
    """
    import httpx2

    from hub.supervisor import last_line

    url = f"{settings.url}/views/{view}"
    began_s = time.monotonic()
    report_at_s = began_s + _PROGRESS_EVERY_S
    with _spinner("Spark computes the view"):
        while not stop.wait(0.2):
            step()
            try:
                answer = httpx2.get(url, params={"limit": "1"}, headers=settings.authorization, timeout=5.0)
                found: list[dict[str, Any]] = answer.json().get("rows", []) if answer.is_success else []
            except (httpx2.HTTPError, ValueError):
                found = []
            if found:
                return str(found[0]["key"])
            if (now_s := time.monotonic()) >= report_at_s:
                report_at_s = now_s + _PROGRESS_EVERY_S
                log = settings.logs / "materializer.log"
                note(f"  {view} has no row after {now_s - began_s:.0f} s; the materializer: {last_line(log)}")
    raise KeyboardInterrupt


@contextmanager
def _spinner(what: str) -> Iterator[None]:
    from rich.console import Console

    console = Console(stderr=True)
    if not sys.stderr.isatty():
        note(f"{what} ...")
        yield
        return
    with console.status(what):
        yield


def command_here() -> str:
    """Return how the current folder calls the hub: ``./run hub`` in a checkout, else ``hub``."""
    checkout = EXAMPLES.parent
    return "./run hub" if (checkout / "run").exists() and Path.cwd() == checkout else "hub"


def _greet(settings: Settings, view: str, key: str, took_s: float, replay: str) -> None:
    url = settings.url
    run = command_here()
    print(
        f"""
First rows of {view} after {took_s:.0f} s. {replay}

  Dashboard     {url}/?view={view}&key={key}
  One row       curl {url}/views/{view}/{key}
  Its changes   {run} watch {view} --key {key}
  Some rows     {run} query {view} --limit 5
  How late      {run} lag
  Topics        {run} topic ls
  Edit the view {settings.project / "views" / f"{view}.yaml"}   (picked up while it runs)

Ctrl-C stops everything this command started. State and logs: {settings.home.absolute()}
""",
        flush=True,
    )
