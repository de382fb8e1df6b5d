"""[shell] Choose the generation of a version: continue from its checkpoint, or begin from the start of the
log.

``judge_state`` and ``next_beginning`` decide; ``GenerationChoice`` reads the files and writes the result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hub.errors import HubError
from hub.materializers.definition.declared import changelog_of
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.engine.plans.compile import CompiledView
from hub.materializers.engine.plans.definitions import in_place
from hub.materializers.progress.published import published_progress
from hub.materializers.spark import checkpoint_corruption
from hub.materializers.versions.versions import ComputationKept, Version, VersionLost

_LOST = "HUB-3056"

StateVerdict = Literal["fits", "other plan", "other topics", "missing"]
# Recompute in the same changelog; fill an empty changelog; leave the rows and open another version.
Beginning = Literal["in place", "first", "beside"]


@dataclass(frozen=True, slots=True)
class Generation:
    """A generation that runs. ``partitions``: its state partitions."""

    number: int
    checkpoint: Path
    partitions: int


def judge_state(
    note: Mapping[str, Any], fingerprint: str, topic_ids: Mapping[str, str], *, exists: bool
) -> StateVerdict:
    """Return whether a plan can continue from a checkpoint. ``note``: plan.json; ``topic_ids``: of the topics
    that the plan reads; ``exists``: whether the checkpoint's folder is there.

    >>> note = {"fingerprint": "f", "topics": {"in": "id-1"}}
    >>> judge_state(note, "f", {"in": "id-1", "joined": "id-2"}, exists=True)
    'fits'
    >>> judge_state(note, "f", {"in": "id-3"}, exists=True)
    'other topics'
    """
    if not exists:
        return "missing"
    if any(topic_ids.get(topic) != topic_id for topic, topic_id in note["topics"].items()):
        return "other topics"
    return "fits" if note["fingerprint"] == fingerprint else "other plan"


def next_beginning(version: Version | None, *, replaces_rows: bool, has_rows: bool) -> Beginning:
    """Return how a version without a usable checkpoint begins. ``replaces_rows``: it is recomputed in place;
    ``has_rows``: its changelog has records.

    The rows of a view's own name are never overwritten by a state that begins from nothing, unless the view
    is recomputed in place.
    """
    if version is None or replaces_rows:
        return "in place"
    return "beside" if version.suffix is None or has_rows else "first"


class GenerationChoice:
    """Chooses the generation of one version."""

    def __init__(self, parts: EngineParts, name: VersionName, folder: CheckpointFolder) -> None:
        self._parts = parts
        self._name = name
        self._folder = folder

    def choose(self, made: CompiledView, topic_ids: Mapping[str, str], partitions: int) -> Generation:
        """Return the generation to run. Keeps the running one if its state fits.

        Raises HubError for a version whose state is lost, after another version was opened to replace it.
        """
        note = self._folder.note()
        why = self._folder.why_lost(None)
        if note is not None:
            kept = self._continued(note, made, topic_ids)
            if isinstance(kept, Generation):
                return kept
            why = kept
        self._folder.check_rebuilds()
        number = self._begun(made, why)
        body = {
            "fingerprint": made.fingerprint,
            "topics": dict(topic_ids),
            "partitions": partitions,
            **made.pins(),
        }
        self._folder.begin(number, body)
        return Generation(number, self._folder.of(number), partitions)

    def _continued(
        self, note: Mapping[str, Any], made: CompiledView, topic_ids: Mapping[str, str]
    ) -> Generation | str:
        """Return the noted generation, or why it cannot continue."""
        number = int(note["generation"])
        checkpoint = self._folder.of(number)
        verdict = judge_state(note, made.fingerprint, topic_ids, exists=checkpoint.exists())
        if verdict == "other plan":
            return "its state fits no more"
        if verdict == "other topics":
            return "a topic that it reads was recreated"
        wrong = None
        if verdict == "fits":
            wrong = checkpoint_corruption.of_logs(checkpoint, delta=made.delta is not None)
        if verdict == "missing" or wrong is not None:
            if wrong is not None:
                self._folder.set_aside(checkpoint, wrong)
            return self._folder.why_lost(number)
        # Add topics that have joined a pattern since, and pins, which notes from before versions do not have.
        noted = {**made.pins(), **note, "topics": {**topic_ids, **note["topics"]}}
        if noted != note:
            self._folder.write_note(noted)
        return Generation(number, checkpoint, note["partitions"])

    def _begun(self, made: CompiledView, why: str) -> int:
        """Return the number of a generation that begins from the start of the log."""
        view, versions = made.view, self._parts.versions
        version = versions.version(self._name.view, self._name.suffix)
        replaces_rows = in_place(view, self._parts.settings)
        has_rows = (
            version is not None
            and not replaces_rows
            and version.suffix is not None
            and sum(end for _, end in self._parts.cluster.end_offsets([view.changelog])) > 0
        )
        beginning = next_beginning(version, replaces_rows=replaces_rows, has_rows=has_rows)
        if version is None or beginning == "in place":
            generation = max(self._published(), *self._folder.generations(), 0) + 1
            if version is not None:
                kept = ComputationKept(version.number, version.definition, why)
                versions.submit(self._name.view, kept)
            return generation
        if beginning == "beside":
            versions.submit(self._name.view, VersionLost(version.number, why))
            raise HubError(
                f"{why}: it is rebuilt, and its current rows stay until then",
                hint=f"hub view show {view.name} shows the progress",
                code=_LOST,
            )
        return version.number

    def _published(self) -> int:
        """Return the latest generation in the progress topic, 0 if there is none. The log outlives lost
        checkpoints."""
        table, timeout_s = self._name.table, self._parts.settings.kafka_timeout_s
        progress = published_progress(self._parts.cluster, table, changelog_of(table), timeout_s)
        return progress.generation if progress is not None else 0
