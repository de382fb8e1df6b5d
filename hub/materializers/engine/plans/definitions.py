"""[shell] Choose which definition of a view one of its versions computes (versions/versions.py).

The view's file applies to the newest version. An older version continues from its own definition in the log.
A version also keeps the schemas and topics that it was created with while its topics' newest ones do not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hub.config import SERVING, Settings
from hub.errors import HubError
from hub.log import TopicDescription
from hub.materializers.definition.declared import changelog_of
from hub.materializers.definition.entity_plan import RULES
from hub.materializers.definition.entity_view import View
from hub.materializers.definition.load import body_of, load_view, view_of
from hub.materializers.definition.sql_view import SqlView
from hub.materializers.engine.parts import EngineParts, VersionName
from hub.materializers.engine.plans.checkpoint_note import CheckpointFolder
from hub.materializers.engine.plans.compile import CompiledView, ViewCompiler
from hub.materializers.versions.versions import (
    ComputationKept,
    DefinitionChanged,
    SwapPolicy,
    Version,
    VersionDefinition,
)

_DROPPED = "HUB-3057"


class DefinitionChoice:
    """The definition that one version computes. ``trouble``: why the view's file was rejected; None: it was
    not. ``pinned``: the version keeps the schemas and topics that it was created with."""

    def __init__(
        self, parts: EngineParts, name: VersionName, compiler: ViewCompiler, folder: CheckpointFolder
    ) -> None:
        self._settings = parts.settings
        self._versions = parts.versions
        self._name = name
        self._compiler = compiler
        self._folder = folder
        self.trouble: str | None = None
        self.pinned = False

    @property
    def follows_file(self) -> bool:
        """True if the view's file applies to this version, the newest one."""
        versions = self._versions.of(self._name.view)
        return versions is None or versions.versions[-1].suffix == self._name.suffix

    def choose(self, topics: Mapping[str, TopicDescription], text: str) -> CompiledView:
        """Return the view as this version computes it. Open another version when the definition's meaning has
        changed. ``text``: the view's file now.

        Raises HubError when neither the file nor the version's own definition can be compiled.
        """
        self.pinned = False
        state = self._versions.of(self._name.view)
        if state is None:
            return self._compiler.compile(load_view(self._name.path), topics, rules=self.rules())
        version = state.with_suffix(self._name.suffix)
        if version is None:
            raise HubError(f"version {self._name.table} was dropped", code=_DROPPED)
        if self.follows_file and text != state.judged:
            candidate = self._candidate(version, text, topics)
            if candidate is not None:
                return candidate
        else:
            self.trouble = None
        stored = view_of(version.definition.body).of_version(self._name.suffix)
        note = self._folder.note()
        if note is None or in_place(stored, self._settings):
            return self._recomputable(version, stored, topics)
        if self.follows_file:
            current = self._current(version, stored, topics, note)
            if current is not None:
                return current
        self.pinned = "latest" in note
        return self._compiler.compile(stored, topics, note if self.pinned else None, self.rules())

    def rules(self) -> int:
        """Return the rules that this version's state was made with; ``RULES`` if it has no state."""
        note = self._folder.note()
        return RULES if note is None else int(note.get("rules", 0))

    def _candidate(
        self, version: Version, text: str, topics: Mapping[str, TopicDescription]
    ) -> CompiledView | None:
        """Compile the file's new text for this version. Return None if this version's state does not fit it.

        In that case the reason is recorded in ``trouble``, or another version is opened for it.
        """
        try:
            view = load_view(self._name.path).of_version(self._name.suffix)
            made = self._compiler.compile(view, topics, rules=self.rules())
            if made.rules != RULES and made.fingerprint != version.definition.fingerprint:
                made = self._compiler.compile(view, topics)  # its meaning changes in any case
        except HubError as error:
            if error.retriable:
                raise
            self.trouble = f"{self._name.path.name} is not taken: {error}"
            return None
        self.trouble = None
        definition = definition_of(made, text)
        if in_place(view, self._settings):
            self._versions.submit(self._name.view, ComputationKept(version.number, definition))
            return made
        # The text may equal the definition of another version, or of this one.
        self._versions.submit(self._name.view, DefinitionChanged(definition, "its file has changed"))
        own = self._versions.version(self._name.view, self._name.suffix)
        return made if own is not None and own.definition.fingerprint == made.fingerprint else None

    def _recomputable(
        self, version: Version, stored: View | SqlView, topics: Mapping[str, TopicDescription]
    ) -> CompiledView:
        """Compile a version that has no state to keep, or that replaces its rows one by one."""
        made = self._compiler.compile(stored, topics, rules=self.rules())
        if made.fingerprint != version.definition.fingerprint:  # written by the rules of an earlier version
            definition = definition_of(made, version.definition.text)
            self._versions.submit(self._name.view, ComputationKept(version.number, definition))
        return made

    def _current(
        self,
        version: Version,
        stored: View | SqlView,
        topics: Mapping[str, TopicDescription],
        note: Mapping[str, Any],
    ) -> CompiledView | None:
        """Compile the newest version with the newest schemas. Return None if it has to keep those of its
        state; another version was then opened, or ``trouble`` has the reason."""
        try:
            made = self._compiler.compile(stored, topics, rules=self.rules())
        except HubError as error:
            if error.retriable or "latest" not in note:
                raise
            self.trouble = f"it continues with its original schemas: {error}"
            return None
        if made.fingerprint == note["fingerprint"]:
            return made
        definition = definition_of(made, version.definition.text)
        changed = DefinitionChanged(definition, "what it reads has changed", by_file=False)
        self._versions.submit(self._name.view, changed)
        return None


def definition_of(made: CompiledView, text: str) -> VersionDefinition:
    """Return the definition of a version. ``text``: the view's file."""
    view, swap = made.view, made.view.swap
    policy = SwapPolicy(
        swap.when == "manual",
        SERVING in (view.stores or (SERVING,)),
        round(swap.keep_hours * 3_600_000),
        swap.rows_within,
        tuple(swap.same),
        view.recompute_ms,
    )
    if isinstance(view, SqlView):  # topics of other views' versions are looked up at each plan
        named = {
            name: source
            if source.view is None
            else source.model_copy(update={"topic": changelog_of(source.view)})
            for name, source in view.sources.items()
        }
        view = view.model_copy(update={"sources": named})
    return VersionDefinition(text, body_of(view), made.fingerprint, policy)


def in_place(view: View | SqlView, settings: Settings) -> bool:
    """Return True if a change replaces rows one by one: by declaration, or because a store keeps one
    table per view."""
    urls = settings.store_urls
    kinds = [urls[name].partition(":")[0].partition("+")[0] for name in view.stores if name in urls]
    return view.swap.when == "in_place" or any(kind not in ("sqlite", "postgresql") for kind in kinds)
