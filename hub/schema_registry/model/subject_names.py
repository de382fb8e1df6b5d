"""[core] Subjects live in contexts: ``:.ctx:orders-value`` is ``orders-value`` in the context ``.ctx``.

Each context has ids of its own. The default context is ``.``; its subjects are written without a prefix, so ``:.:s``
is ``s``. ``:.ctx:`` alone names a context as the place of settings, ``:.__GLOBAL:`` the place above all contexts.
Source: Confluent's QualifiedSubject, by its documented behaviour.
"""

from __future__ import annotations

from hub.errors import CallerError

DEFAULT_CONTEXT = "."
EVERY_CONTEXT = ":*:"
ABOVE_CONTEXTS = ":.__GLOBAL:"
LONGEST = 1_024
_RESERVED = ("__GLOBAL", "__EMPTY")


class InvalidSubject(CallerError):
    """No name that a subject may have."""

    code = "HUB-1211"


def split(subject: str) -> tuple[str, str]:
    """(context, name within it): ``(".ctx", "s")``; the name is empty when a context is meant."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT, subject
    context, _, name = subject[1:].partition(":")
    return context, name


def joined(context: str, name: str) -> str:
    """The subject of that name in a context, as it is written."""
    return name if context == DEFAULT_CONTEXT else f":{context}:{name}"


def context_of(subject: str | None) -> str:
    return DEFAULT_CONTEXT if subject is None else split(subject)[0]


def normal(subject: str) -> str:
    """The one spelling of a subject: ``:.:s`` is ``s``."""
    return joined(*split(subject))


def beside(subject: str, name: str) -> str:
    """The subject that ``name`` means when it is written in a schema of ``subject``: of the same context."""
    return normal(name) if name.startswith(":.") else joined(context_of(subject), name)


def written_in(subject: str, name: str) -> str:
    """How a schema of ``subject`` writes a subject, so that ``beside`` gives it back."""
    return name if context_of(subject) == DEFAULT_CONTEXT or name.startswith(":.") else f":.:{name}"


def context_named(text: str) -> str:
    """The context that a path means: ``ctx``, ``.ctx`` and ``:.ctx:`` are one."""
    inside = text.removeprefix(":").removesuffix(":")
    return inside if inside.startswith(".") else f".{inside}"


def place(subject: str | None) -> str | None:
    """Where settings of a subject or context are kept; None is the place of all of the default context."""
    return (normal(subject) or None) if subject is not None else None


def places(subject: str | None) -> list[str | None]:
    """Where settings of a subject are looked for, nearest first: its own, its context's, those above all contexts."""
    own = place(subject)
    context = context_of(own)
    around = None if context == DEFAULT_CONTEXT else joined(context, "")
    return list(dict.fromkeys([own, around, ABOVE_CONTEXTS]))


def within(subject: str, around: str | None) -> bool:
    """True when ``subject`` is ``around``, or lies in the context that ``around`` names (None: the default one;
    ``:.__GLOBAL:``: in any)."""
    if around == ABOVE_CONTEXTS:
        return True
    if around is None or not split(around)[1]:
        return context_of(subject) == context_of(around)
    return subject == around


def check(subject: str, *, may_be_context: bool = False) -> None:
    """Raises InvalidSubject for a name that is empty, too long, reserved or has control characters."""
    name = split(subject)[1]
    empty = not name and not (may_be_context and subject.startswith(":."))
    control = any(ord(each) < 32 or 127 <= ord(each) < 160 for each in subject)
    if empty or control or name in _RESERVED or len(subject) > LONGEST:
        raise InvalidSubject(f"The specified subject '{subject[:80]}' is not a valid.")
