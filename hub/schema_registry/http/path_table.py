"""[core] Tables of paths, shared by the two registries: which handlers answer a path, and how an error of
access is answered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from hub.caller import Forbidden, Unauthenticated
from hub.schema_registry.http.asgi import NOT_ALLOWED, HttpAnswer, HttpCall

Handler = Callable[[HttpCall], HttpAnswer]
Methods = Mapping[str, Handler]

_OPEN: Final = ""  # a variable part of a path


class PathTable:
    """Paths with their handlers by method. The variable parts of a path are empty: ``subjects//versions``."""

    def __init__(self, paths: Iterable[tuple[str, Methods]]) -> None:
        self.paths: Final = tuple(paths)
        self._by_shape: dict[tuple[int, str], list[tuple[str, tuple[str, ...], Methods]]] = {}
        for pattern, methods in self.paths:
            parts = tuple(pattern.split("/"))
            self._by_shape.setdefault((len(parts), parts[0]), []).append((pattern, parts, methods))

    def find(self, call: HttpCall) -> tuple[str, Methods] | None:
        """Return the first pattern that fits the call's path, and set the call's parameters."""
        segments = call.segments
        if not segments:
            return None
        for pattern, parts, methods in self._by_shape.get((len(segments), segments[0]), ()):
            if all(part in (_OPEN, each) for part, each in zip(parts, segments, strict=True)):
                call.params = [each for part, each in zip(parts, segments, strict=True) if part == _OPEN]
                return pattern, methods
        return None


def not_allowed(methods: Methods) -> HttpAnswer:
    """Return the answer to a method that a path does not have."""
    return HttpAnswer(NOT_ALLOWED.body, 405, ((b"allow", ", ".join(sorted(methods)).encode()),))


def denied(error: Forbidden | Unauthenticated) -> HttpAnswer:
    """Return Confluent's answer for a forbidden or unauthenticated request."""
    status = 401 if isinstance(error, Unauthenticated) else 403
    hint = f": {error.hint}" if error.hint else ""
    return HttpAnswer.error(status, status * 100 + 1, f"{error.message}{hint}")
