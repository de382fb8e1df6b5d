"""[edge] ``hub outbox``: events of a database's outbox table to Kafka (docs/how-to/use-the-outbox.md)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hub.cli.context import load_settings, open_home
from hub.cli.terminal.output import Output, OutputOption, note, show_one
from hub.config import Settings
from hub.errors import CallerError, ConfigError, NotFound
from hub.times import epoch_ms

if TYPE_CHECKING:
    from hub.outbox.database import OutboxDatabase

app = typer.Typer(
    help="Events of a database's outbox table to Kafka: set-up, relay, state.",
    rich_markup_mode=None,
    no_args_is_help=True,
    epilog="Example: hub outbox init --database postgresql://app@db/shop; hub outbox relay",
)

DatabaseOption = Annotated[
    str | None,
    typer.Option("--database", help="postgresql://user@host/database. Default: outbox_database of hub.yaml"),
]
TableOption = Annotated[
    str | None,
    typer.Option("--table", help="Name of the table. Default: outbox_table of hub.yaml, hub_outbox"),
]


@app.command("init")
def init(
    database: DatabaseOption = None,
    table: TableOption = None,
    sql: Annotated[bool, typer.Option("--sql", help="Print the statements, run nothing")] = False,
) -> None:
    """Check the database, then make the outbox table, its publication and its slot.

    What exists stays. A failed check prints the exact statement that mends it; nothing is made then.

    Example: hub outbox init --database postgresql://owner@db/shop
    """
    from hub.outbox.database import problems

    with _opened(database, table) as (_, outbox):
        facts = outbox.facts()
        found = problems(facts)
        for problem in found:
            note(f"{'Not ready' if problem.fatal else 'Note'}: {problem.what}\n  {problem.fix}")
        statements = outbox.statements(facts)
        if sql:
            for statement in statements:
                print(f"{statement};")
            return
        if any(problem.fatal for problem in found):
            raise ConfigError(
                f'database "{facts.database}" cannot have a relay yet',
                hint="run the statements above, then this command again",
                code="HUB-1140",
            )
        outbox.run(statements)
        for statement in statements:
            note(f"done: {statement.splitlines()[0]}")
        note(f'The outbox is table "{outbox.table}", slot "{outbox.slot}".')
        note(f"An application's role needs: GRANT INSERT ON {outbox.table} TO …;")


@app.command("relay")
def relay(database: DatabaseOption = None, table: TableOption = None) -> None:
    """Relay committed events to Kafka until a stop signal comes; `hub up` does it by `outbox_database`.

    Of several relays of one table, one works and the others wait.

    Example: hub outbox relay --database postgresql://app@db/shop
    """
    from hub.formats.admission import admit
    from hub.kafka import own_cluster
    from hub.kafka.contact.notes import note_for_ever
    from hub.outbox.note import NoteFile
    from hub.outbox.relay import Relay
    from hub.runtime import install_stop_signals, log_to_stderr
    from hub.schema_registry.client.registry_client import RegistryClient
    from hub.schema_registry.encryption.sealing import SEALER
    from hub.schema_registry.encryption.serving import use_remote_keys
    from hub.topics.tree.erasable import seal_by_tree

    log_to_stderr()
    settings, url = _settings(database, table)
    open_home(settings)
    stop = install_stop_signals()
    note_for_ever(settings.home, "outbox")
    admit(settings, "outbox")
    use_remote_keys(settings)
    seal_by_tree(settings.project, settings.erase_kek)
    registry = RegistryClient(settings.registry)
    Relay(
        url,
        settings.outbox_table,
        own_cluster(settings),
        settings.replication_factor,
        settings.outbox_delete,
        settings.kafka_timeout_s,
        NoteFile(settings.home).write,
        seal=lambda topic, value: SEALER.sealed(topic, value, registry),
    ).run(stop)


@app.command("status")
def status(
    database: DatabaseOption = None, table: TableOption = None, output: OutputOption = Output.table
) -> None:
    """State of the outbox: position, lag, refused events. Exit code 1 while no relay reads it.

    Example: hub outbox status -o json
    """
    from hub.outbox.note import read_note
    from hub.outbox.pgoutput import lsn_text

    with _opened(database, table) as (settings, outbox):
        slot = outbox.slot_state()
        stored = _stored(settings, outbox)
        outbox_note = read_note(settings.home, epoch_ms())
        shown: dict[str, object] = {
            "slot": outbox.slot,
            "relay": "no slot: hub outbox init" if slot is None else "active" if slot.active else "none",
            "lag_bytes": None if slot is None else slot.lag_bytes,
            "retained_bytes": None if slot is None else slot.retained_bytes,
            "wal_status": None if slot is None else slot.wal_status,
            "lag_s": None if outbox_note is None else outbox_note.lag_s,
            "trouble": None if outbox_note is None else outbox_note.trouble or None,
            "position": None if stored.position is None else lsn_text(stored.position.lsn),
            "events": stored.events,
            "refused": {each.id: f"{each.topic}: {each.reason}" for each in stored.refused.values()},
        }
    show_one(shown, output)
    raise typer.Exit(0 if slot is not None and slot.active else 1)


@app.command("retry")
def retry(
    event: Annotated[
        str | None, typer.Argument(help="Id of the event, as hub outbox status shows it")
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="Every row of the table: after a lost slot, with outbox_delete")
    ] = False,
    database: DatabaseOption = None,
    table: TableOption = None,
) -> None:
    """Relay a row of the table again, under its id: one that Kafka refused, after the cause is mended.

    Example: hub outbox retry 7c0f2a52-6e0e-4d5e-9c5a-7e9b6d8f1a11
    """
    if (event is None) != every:
        raise CallerError("name an event, or --all", hint="hub outbox status shows refused events")
    with _opened(database, table) as (_, outbox):
        count = outbox.insert_again(event)
    if not count and event is not None:
        raise NotFound(f'the table has no event "{event}"', hint="hub outbox status shows refused events")
    note(f"{count} events are relayed again.")


@app.command("forget")
def forget(database: DatabaseOption = None, table: TableOption = None) -> None:
    """Forget the relay's position: the next relay begins where its slot does. Only after a restored backup.

    Example: hub outbox forget
    """
    from hub.kafka import own_cluster
    from hub.outbox.checkpoints import forget_record

    with _opened(database, table) as (settings, outbox):
        if (slot := outbox.slot_state()) is not None and slot.active:
            raise CallerError(f'a relay reads slot "{outbox.slot}"', hint="stop it first")
        stored = _stored(settings, outbox)
        writer = own_cluster(settings).writer()
        try:
            writer.append([forget_record(stored.outbox, outbox.clock_ms())])
        finally:
            writer.close()
    note(f'The position of "{stored.outbox}" is forgotten.')


def _settings(database: str | None, table: str | None) -> tuple[Settings, str]:
    settings = load_settings(outbox_database=database, outbox_table=table)
    if settings.outbox_database is None:
        raise ConfigError(
            "no database of an outbox is named",
            hint="--database URL, or outbox_database in hub.yaml",
            code="HUB-1101",
        )
    return settings, settings.outbox_database


@contextmanager
def _opened(database: str | None, table: str | None) -> Iterator[tuple[Settings, OutboxDatabase]]:
    from hub.outbox.database import opened

    settings, url = _settings(database, table)
    with opened(url, settings.outbox_table) as outbox:
        yield settings, outbox


def _stored(settings: Settings, outbox: OutboxDatabase) -> Any:
    from hub.kafka import own_cluster
    from hub.outbox.relay import read_stored

    return read_stored(own_cluster(settings), f"{outbox.system_id()}/{outbox.slot}")
