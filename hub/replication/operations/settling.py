"""[shell] Settle the records that only the old source has: export, then append or discard them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hub.errors import CallerError
from hub.replication.maps.checkpoint import Checkpoint
from hub.replication.operations.catch_up import catch_up, discard, tails
from hub.replication.operations.mirrored_clusters import MirroredClusters
from hub.replication.operations.tail_export import export_tails, write_report
from hub.replication.ownership.links import Link
from hub.replication.ownership.operation_steps import OwnershipChange, scope_of
from hub.times import epoch_ms


def export_tail(
    world: MirroredClusters, operation: OwnershipChange, say: Callable[[str], None]
) -> list[tuple[Link, Checkpoint, int]]:
    """Export the records that only the old source has, if the operation wants that, and return their ranges.
    Workers append a tail as soon as the former step is recorded, so a replayed one is exported in that step.
    """
    found = tails(world, operation.new, operation.old, operation.home)
    if operation.export:
        if world.signer is None:
            raise CallerError(
                f"this process cannot sign the report of {operation.kind} {operation.id}",
                hint=f"continue with the command line: hub mirror resume {operation.mirror}",
            )
        places = {mark.place: (mark.source_next, end) for _, mark, end in found}
        decision = "appended behind the records of the other side" if operation.tail == "replay" else "lost"
        export_tails(
            Path(operation.export), world.clusters[operation.new], places, f"not mirrored: {decision}"
        )
        say(f"  exported to {operation.export}")
    return found


def settle_tail(
    world: MirroredClusters, operation: OwnershipChange, wait_s: float, say: Callable[[str], None]
) -> None:
    """Do the step of a failback, perhaps again. With ``export``, exactly the exported offsets are declared
    lost: records that a writer adds meanwhile stay and are mirrored later.
    """
    old, new, home = operation.old, operation.new, operation.home
    if operation.tail == "replay":
        catch_up(world, new, old, home, wait_s=wait_s, say=say)
    else:
        discard(world, old, export_tail(world, operation, say))
    if operation.export and world.signer is not None:
        scopes = [scope_of(home, topic) for topic in operation.topics or ("",)]
        declared = {
            scope: state.declared[scope]
            for state in world.control_states().values()
            for scope in scopes
            if scope in state.declared
        }
        now_ms, left = epoch_ms(), [*declared.values()]
        write_report(Path(operation.export), operation, left, world.signer(), world.by, now_ms)
