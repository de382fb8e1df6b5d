"""[core] Edit the settings of one topic in the text of topics.yaml. Comments and the order of keys stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hub.errors import CallerError
from hub.project_edits.yaml_text import NotEdited, Scalar, has_value, set_value


def edit_topic(text: str, topic: str, settings: Mapping[str, Scalar | None], nodes: Sequence[str]) -> str:
    """Return the text with these settings of a topic, which is added where it is missing.

    ``settings``: ``partitions``, ``retention``, ``config.KEY``; None removes a setting. ``nodes``: topics
    above that need ``topic: true`` to stay topics. Raises CallerError where the file's form is not edited.
    """
    try:
        return _edited(text, topic, settings, nodes)
    except NotEdited as error:
        raise CallerError(
            f"topics.yaml: {error.message}", hint="edit the file, then: hub topic plan"
        ) from None


def _edited(text: str, topic: str, settings: Mapping[str, Scalar | None], nodes: Sequence[str]) -> str:
    for node in nodes:
        text = set_value(text, (*_steps(node), "topic"), True)
    steps = _steps(topic)
    if not has_value(text, steps):
        text = set_value(text, steps, {})
    for name, value in settings.items():
        text = set_value(text, (*steps, *name.split(".", 1)), value)
    return text


def _steps(topic: str) -> tuple[str, ...]:
    return tuple(step for label in topic.split(".") for step in ("topics", label))
