"""[core] Subjects in contexts: ``:.ctx:orders-value`` is ``orders-value`` in the context ``.ctx``.

Each context has ids of its own. The default context is ``.``; its subjects are written without a prefix, so
``:.:s`` is ``s``. For settings, ``:.ctx:`` names a context and ``:.__GLOBAL:`` the level above all contexts.
Source: the documented behavior of Confluent's QualifiedSubject.
"""

from __future__ import annotations

import re

from hub.errors import CallerError

DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
ABOVE_CONTEXTS = ":.__GLOBAL:"
LONGEST = 1_024
_RESERVED = ("__GLOBAL", "__EMPTY")
_PERSON = re.compile(r"(?P<topic>.+)\.erasable-[0-9a-f]{32}")


class InvalidSubject(CallerError):
    """An invalid name of a subject."""

    code = "HUB-1211"


def split(subject: str) -> tuple[str, str]:
    """Return (context, name within it): ``(".ctx", "s")``; the name is empty for a context."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def joined(context: str, name: str) -> str:
    """Return the written form of a subject in a context."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def context_of(subject: str | None) -> str:
    return DEFAULT_CONTEXT if subject is None else split(subject)[0]


def normal(subject: str) -> str:
    """Normalize a subject: ``:.:s`` is ``s``."""
    return joined(*split(subject))


def beside(subject: str, name: str) -> str:
    """Return the subject that ``name`` refers to in a schema of ``subject``: it is in the same context."""
    return normal(name) if name.startswith(":.") else joined(context_of(subject), name)


def written_in(subject: str, name: str) -> str:
    """Return the form of a subject inside a schema of ``subject``; the inverse of ``beside``."""
    return name if context_of(subject) == DEFAULT_CONTEXT or name.startswith(":.") else f":.:{name}"


def context_named(text: str) -> str:
    """Return the context in a path: ``ctx``, ``.ctx`` and ``:.ctx:`` are the same."""
    inside = text.removeprefix(":").removesuffix(":")
    return inside if inside.startswith(".") else f".{inside}"


def place(subject: str | None) -> str | None:
    """Return the key under which settings of a subject or context are stored; None is the default context."""
    return (normal(subject) or None) if subject is not None else None


def places(subject: str | None) -> list[str | None]:
    """Return the keys of a subject's settings, nearest first: its own, its context's, the global one."""
    own = place(subject)
    context = context_of(own)
    around = None if context == DEFAULT_CONTEXT else joined(context, "")
    return list(dict.fromkeys([own, around, ABOVE_CONTEXTS]))


def within(subject: str, around: str | None) -> bool:
    """Return True if ``subject`` equals ``around``, or lies in the context that ``around`` names.

    ``around`` None is the default context, ``:.__GLOBAL:`` any context.
    """
    if around == ABOVE_CONTEXTS:
        return True
    if around is None or not split(around)[1]:
        return context_of(subject) == context_of(around)
    return subject == around


def check(subject: str, *, may_be_context: bool = False) -> None:
    """Raise InvalidSubject for a name that is empty, too long, reserved or has control characters."""
    name = split(subject)[1]
    empty = not name and not (may_be_context and subject.startswith(":."))
    control = any(ord(each) < 32 or 127 <= ord(each) < 160 for each in subject)
    if empty or control or name in _RESERVED or len(subject) > LONGEST:
        raise InvalidSubject(f"The specified subject '{subject[:80]}' is not a valid.")


def person_subject(topic: str, person: str) -> str:
    """Return the subject of a person's data key in an erasable topic. ``person``: the hash of the id."""
    return f"{topic}.erasable-{person}-value"


def topic_of(subject: str) -> str:
    """Return the topic that a subject of values, keys or data keys belongs to.

    >>> topic_of(person_subject("crm.people", "0" * 32)), topic_of(":.eu:shop.orders-key")
    ('crm.people', 'shop.orders')
    """
    name = split(subject)[1]
    name = next((name.removesuffix(each) for each in ("-value", "-key") if name.endswith(each)), name)
    person = _PERSON.fullmatch(name)
    return person["topic"] if person else name
