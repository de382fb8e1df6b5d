"""[core] The topic of a subject, by the three naming strategies of Confluent's serializers.

=============================  ====================  =======================================================
subject                        topic                 strategy
=============================  ====================  =======================================================
``retail.orders-value``        ``retail.orders``     TopicName; ``-key`` for keys
``retail.orders-acme.Order``   ``retail.orders``     TopicRecordName: the longest known topic, or else the
                                                     longest that a node of the tree covers
``retail.orders.OrderPlaced``  (unchanged)           RecordName: the namespace is the place in the tree
``:.eu:retail.orders-value``   ``retail.orders``     a context is an outer namespace
``my subject``                 ""                    no topic: the root's rules apply
=============================  ====================  =======================================================
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass

from hub.schema_registry.model import subject_names as names

_LONGEST = 249  # maximum length of a topic's name
_MOST_LABELS = 125  # of a topic; a record's name may have more, and no pattern has
_TOPIC = re.compile(r"[a-zA-Z0-9_-]+(\.[a-zA-Z0-9_-]+)*")


@dataclass(frozen=True, slots=True)
class Subject:
    """Parts of a subject. ``context`` is "" for the default one; ``topic`` is "" when there is none."""

    context: str
    topic: str
    is_key: bool


def split(
    subject: str,
    topics: Collection[str] = frozenset(),
    is_written_out: Callable[[str], bool] = lambda topic: False,
    has_node: Callable[[str], bool] = lambda topic: False,
) -> Subject:
    """Split a subject; the name of a topic counts as the subject of its values.

    ``topics`` are the known topics. ``is_written_out`` returns whether a node of the tree has exactly this
    name, ``has_node`` whether a node covers it, also by wildcards.
    """
    context, name = names.split(subject)
    context = context.removeprefix(".")
    if name in topics:
        return Subject(context, name, is_key=False)
    name = ".".join(name.split(".")[:_MOST_LABELS]) if name.count(".") >= _MOST_LABELS else name
    for suffix, is_key in (("-value", False), ("-key", True)):
        if name.endswith(suffix) and _TOPIC.fullmatch(name.removesuffix(suffix)):
            return Subject(context, name.removesuffix(suffix), is_key)
    dashes = re.finditer("-", name[: _LONGEST + 1])
    before_dashes = [name[: dash.start()] for dash in dashes][::-1]  # the longest first
    known = next((each for each in before_dashes if each in topics), None)
    if known is None and not is_written_out(name):
        known = next((each for each in before_dashes if _TOPIC.fullmatch(each) and has_node(each)), None)
    topic = known if known is not None else name if _TOPIC.fullmatch(name) else ""
    return Subject(context, topic, is_key=False)
