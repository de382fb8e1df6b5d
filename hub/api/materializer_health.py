"""[shell] State of the way from materializer to server that the log does not show; see
hub.materializers.progress.view_states."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from hub.config import Settings
from hub.materializers.engine.file_watch import ViewFolder
from hub.materializers.engine.report_thread import folder_of
from hub.materializers.progress.store_watch import ServerFacts
from hub.materializers.stores.open_store import shown
from hub.materializers.stores.sql_store import Store
from hub.observability.overview.contact_watch import ContactWatch, is_cut_off, message_of, worst
from hub.supervisor import running_hub


def around(
    settings: Settings, store: Store, contact: ContactWatch, kafka: Callable[[], str | None]
) -> ServerFacts:
    """Return the facts of this server. ``kafka``: returns why Kafka does not answer this server, None
    while it does."""
    folder = ViewFolder(settings.project)
    return ServerFacts(
        store.served_tables,
        kafka,
        partial(process_text, settings.home, contact, "materializer"),
        partial(process_text, settings.home, contact, "applier"),
        lambda: _files(folder),
        folder_of(settings.project),
        {name: shown(url) for name, url in settings.store_urls.items()},
    )


def process_text(home: Path, contact: ContactWatch, name: str) -> str:
    """Describe whether the named process runs, and whether Kafka answers it, as far as this machine shows
    it."""
    note = next((each for each in contact.notes if each.process == name), None)
    if note is not None:
        alive = f"the {name} process is alive (pid {note.pid})"
        process = worst(note)
        if process.seconds is None:  # its contact with Kafka is unknown
            return f"the {name} process gives no sign of life: {process.why}"
        return f"{alive} and cut off from Kafka: {message_of(process)}" if is_cut_off(process) else alive
    if running_hub(home) is not None:
        return f"the {name} process does not run"
    return f"whether the {name} process runs is not known on this machine"


def _files(folder: ViewFolder) -> frozenset[str] | None:
    return frozenset(path.stem for path in folder.files()) if folder.folder.is_dir() else None
