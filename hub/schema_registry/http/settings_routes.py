"""[edge] Routes of settings, modes and contexts, and of the server itself."""

from __future__ import annotations

from typing import Any

from hub.caller import CALLER, sees_subject
from hub.schema_registry.http.answers import Answers
from hub.schema_registry.http.asgi import HttpAnswer, HttpCall
from hub.schema_registry.http.calls import place_in
from hub.schema_registry.model import subject_names as names
from hub.schema_registry.registry.across_contexts import context_names
from hub.schema_registry.registry.state_machine import (
    DEFAULT_MODE,
    DeleteContext,
    Registry,
    RequestRefused,
    SetLevel,
    SetMode,
    settings_json,
)


class SettingsRoutes:
    """Handlers below ``/config``, ``/mode``, ``/contexts`` and ``/v1/metadata``."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def settings(self, call: HttpCall) -> HttpAnswer:
        subject = place_in(call)

        def read_settings(registry: Registry) -> dict[str, Any]:
            place = names.place(subject)
            if place is None or call.flag("defaultToGlobal"):
                return registry.settings(place)
            own = registry.levels.get(place)
            if own is None:
                raise RequestRefused(
                    404, 40408, f"Subject '{subject}' does not have subject-level compatibility configured"
                )
            return settings_json(own)

        return HttpAnswer.of(self._answers.node.read(read_settings))

    def set_settings(self, call: HttpCall) -> HttpAnswer:
        return self._answers.submit(SetLevel(place_in(call), call.json()))

    def unset_settings(self, call: HttpCall) -> HttpAnswer:
        return self._answers.submit(SetLevel(place_in(call), None))

    def mode(self, call: HttpCall) -> HttpAnswer:
        subject = place_in(call)

        def read_mode(registry: Registry) -> str:
            place = names.place(subject)
            if place is None or call.flag("defaultToGlobal"):
                return registry.mode_of(place)
            own = registry.modes.get(place)
            if own is None:
                raise RequestRefused(
                    404, 40409, f"Subject '{subject}' does not have subject-level mode configured"
                )
            return own.mode or DEFAULT_MODE

        return HttpAnswer.of({"mode": self._answers.node.read(read_mode)})

    def set_mode(self, call: HttpCall) -> HttpAnswer:
        mode = call.json().get("mode")
        mode_name = mode.upper() if isinstance(mode, str) else ""
        command = SetMode(place_in(call), mode_name, call.flag("force"), call.flag("recursive"))
        return self._answers.submit(command, lambda answer: {"mode": answer})

    def unset_mode(self, call: HttpCall) -> HttpAnswer:
        command = SetMode(place_in(call), None, force=False, recursive=call.flag("recursive"))
        return self._answers.submit(command, lambda answer: {"mode": answer})

    def contexts(self, call: HttpCall) -> HttpAnswer:
        prefix = call.text("contextPrefix")
        found = self._answers.node.read(_visible_contexts)
        return HttpAnswer.of(call.page([each for each in found if each.startswith(prefix)]))

    def delete_context(self, call: HttpCall) -> HttpAnswer:
        _, position = self._answers.node.submit(DeleteContext(names.context_named(call.params[0])))
        return HttpAnswer(b"", 204, (), position)

    def cluster_id(self, _call: HttpCall) -> HttpAnswer:
        clusters = {"kafka-cluster": "", "schema-registry-cluster": "hub"}
        return HttpAnswer.of({"id": "", "scope": {"path": [], "clusters": clusters}})


def _visible_contexts(registry: Registry) -> list[str]:
    """Return the contexts' names; with access control, the default one and those with a visible subject."""
    found = context_names(registry)
    if CALLER.get() is None:
        return found
    visible = {names.context_of(each) for each in registry.subjects if sees_subject(each)}
    return [each for each in found if each in visible or each == names.DEFAULT_CONTEXT]
