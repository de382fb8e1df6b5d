"""[edge] ``hub backup ls``, ``verify`` and ``prune``."""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hub.cli.backup.places import KeyOption, RunOption, open_place, read_key
from hub.cli.context import load_settings
from hub.cli.terminal.output import Output, OutputOption, note, show, show_one
from hub.cli.terminal.progress import counted
from hub.config import Settings

if TYPE_CHECKING:
    from hub.backup.restoring.verify import BackupDefect, VerifyReport
    from hub.backup.storage.manifest import Manifest
    from hub.replication.clusters.clusters import ClusterHandle

FromOption = Annotated[
    str | None,
    typer.Option("--from", help="Place of the backup. Default: backup_to of hub.yaml"),
]
_EXIT_DIFFERS = 1
_FIRST_PORT, _LAST_PORT = 20_000, 60_000


def ls(
    place: FromOption = None,
    key: KeyOption = None,
    topics: Annotated[bool, typer.Option("--topics", help="List the topics of a run, not the runs")] = False,
    run: RunOption = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="The newest runs, at most")] = 50,
    output: OutputOption = Output.table,
) -> None:
    """List the runs of a backup, or the topics of one.

    Example: hub backup ls --from s3://acme-backup/hub --topics
    """
    from hub.backup.restoring.point_in_time import base_run
    from hub.backup.storage.vault import open_vault

    settings = load_settings()
    vault = open_vault(open_place(settings, place, "--from"), read_key(settings, key))
    if topics:
        chosen = vault.run(run) if run is not None else base_run(vault.newest(1), None)
        show(list(_topic_rows(chosen)), output, ("topic", "partitions", "records", "offsets", "mb", "gaps"))
        return
    runs = vault.newest(limit)
    unfinished = vault.unfinished()
    show([_run_row(each) for each in [*runs, *([unfinished] if unfinished else [])]], output, _RUN_COLUMNS)
    if output is Output.table:
        age_s = time.time() - runs[-1].taken_at_ms / 1000 if runs else None
        note("No run is complete." if age_s is None else f"The newest run is {age_s / 3600:.1f} hours old.")


def prune(
    place: FromOption = None,
    key: KeyOption = None,
    keep: Annotated[int, typer.Option(min=1, help="Newest runs that stay")] = 100,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be deleted")] = False,
    output: OutputOption = Output.table,
) -> None:
    """Delete old runs, and the segments that no remaining run has. The newest run stays complete.

    A restore to a time before the oldest remaining run is not possible any more.
    Example: hub backup prune --from /backup/hub --keep 720
    """
    from hub.backup.storage.prune import plan_prune
    from hub.backup.storage.prune import prune as pruned
    from hub.backup.storage.vault import open_vault

    settings = load_settings()
    store = open_place(settings, place, "--from")
    vault = open_vault(store, read_key(settings, key))
    with store.locked():
        plan = plan_prune(vault, keep)
        if not dry_run:
            pruned(vault, plan)
    show_one({"runs": len(plan.runs), "segments": len(plan.segments), "deleted": not dry_run}, output)


_RUN_COLUMNS = (
    "run",
    "state",
    "taken_at",
    "topics",
    "records",
    "stored_mb",
    "groups",
    "schemas",
    "access_rules",
    "files",
)


def _run_row(manifest: Manifest) -> dict[str, object]:
    return {
        "run": manifest.number,
        "state": "complete" if manifest.complete else "unfinished",
        "taken_at": datetime.fromtimestamp(manifest.taken_at_ms / 1000, UTC).isoformat(timespec="seconds"),
        "topics": len(manifest.topics),
        "records": manifest.records,
        "stored_mb": round(manifest.stored_bytes / 1e6, 1),
        "groups": len(manifest.groups),
        "schemas": None if manifest.registry is None else len(manifest.registry.versions),
        "access_rules": None if manifest.rules is None else len(manifest.rules),
        "files": len(manifest.files),
    }


def _topic_rows(manifest: Manifest) -> Iterator[dict[str, object]]:
    for name, topic in sorted(manifest.topics.items()):
        segments = [segment for each in topic.partitions for segment in each.segments]
        yield {
            "topic": name,
            "partitions": len(topic.partitions),
            "records": topic.records,
            "offsets": " ".join(
                f"{number}:{each.start}-{each.next}" for number, each in enumerate(topic.partitions)
            ),
            "mb": round(sum(each.stored_bytes for each in segments) / 1e6, 1),
            "gaps": sum(len(each.gaps) for each in topic.partitions),
        }


def verify(
    place: FromOption = None,
    key: KeyOption = None,
    run: RunOption = None,
    restore: Annotated[
        bool,
        typer.Option("--restore", help="Also restore it into a scratch Kafka on this machine, and compare"),
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Check every segment: its SHA-256, the checksum of each batch, the order of offsets, the number of
    records.

    With --restore all topics are restored into a Kafka that is started for it and removed afterwards, and
    compared record by record; that needs the disk space of all records. Exit code 1: something is wrong; file
    and offset are listed.
    Example: hub backup verify --from /backup/hub --restore
    """
    from hub.backup.restoring.point_in_time import base_run
    from hub.backup.restoring.verify import try_restore
    from hub.backup.restoring.verify import verify as verified
    from hub.backup.storage.vault import open_vault

    settings = load_settings()
    vault = open_vault(open_place(settings, place, "--from"), read_key(settings, key))
    chosen = vault.run(run) if run is not None else base_run(vault.newest(1), None)
    with counted("Checking segments") as progress:
        report = verified(vault, chosen, progress)
    findings, compared = list(report.findings), None
    if restore and not findings:
        with scratch_kafka(settings) as target, counted("Restoring") as progress:
            compared, more = try_restore(vault, chosen.number, target, progress)
            findings += more
    _show_report(report, findings, compared, output)
    if findings:
        raise typer.Exit(_EXIT_DIFFERS)


def _show_report(
    report: VerifyReport, findings: Sequence[BackupDefect], compared: int | None, output: Output
) -> None:
    row: dict[str, object] = {
        "run": report.run,
        "segments": report.segments,
        "records": report.records,
        "mb": round(report.raw_bytes / 1e6, 1),
        "compared": compared,
        "wrong": len(findings),
        "seconds": round(report.seconds, 1),
    }
    rows = [
        {
            "topic": each.tp.topic,
            "partition": each.tp.partition,
            "offset": each.offset,
            "object": each.object,
            "reason": each.reason,
        }
        for each in findings
    ]
    if output is Output.json:
        show_one({**row, "findings": rows}, output)
        return
    show_one(row)
    if rows:
        show(rows)


@contextmanager
def scratch_kafka(settings: Settings) -> Iterator[ClusterHandle]:
    """Start a Kafka in a temporary folder, and remove it afterwards."""
    from hub.cli.backup.places import open_cluster
    from hub.embedded import KafkaNode

    with tempfile.TemporaryDirectory(prefix="hub-backup-verify-") as folder:
        port = _free_pair()
        node = KafkaNode(settings.model_copy(update={"home": Path(folder), "kafka_port": port}))
        note("Starting a scratch Kafka ...")
        node.start()
        try:
            node.wait_ready(settings.start_timeout_s)
            yield open_cluster(settings, None, node.bootstrap, None)
        finally:
            node.stop()


def _free_pair() -> int:
    """Return a free port whose next one is free, too."""
    for port in range(_FIRST_PORT, _LAST_PORT, 2):
        with socket.socket() as one, socket.socket() as two:
            try:
                one.bind(("127.0.0.1", port))
                two.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
    raise OSError("no two free ports on this machine")
