"""Mutants that no test can catch because they change nothing that anybody can observe,
each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

from mutations.mutants import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """A change that has no effect. ``before`` and ``after`` are the texts as ``Mutant`` has them."""

    module: str
    before: str
    after: str
    reason: str


EQUIVALENT: tuple[Equivalent, ...] = ()

_KNOWN = {(each.module, each.before, each.after) for each in EQUIVALENT}


def is_equivalent(mutant: Mutant) -> bool:
    return (mutant.module, mutant.before, mutant.after) in _KNOWN
