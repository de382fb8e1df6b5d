"""Kinds of faults: a registry of generator functions. The code before ``yield`` injects the fault, the code
after it heals it.

A kind is chosen by seed (trial.py). ``hits`` names the services (probes.py) that may be away because of it;
``needs`` names what a world must have for it; ``alone`` keeps it from being combined with others; ``once``
from happening twice in a trial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from random import Random

from fault_suite.probes import SERVICES
from fault_suite.world import World

Hurt = Callable[[World, Random], AbstractContextManager[None]]


@dataclass(frozen=True)
class Kind:
    """One kind of fault. ``seconds``: shortest and longest time between hurting and healing."""

    name: str
    group: str
    hurt: Hurt
    hits: tuple[str, ...]
    seconds: tuple[float, float]
    needs: frozenset[str]
    alone: bool
    once: bool


KINDS: dict[str, Kind] = {}
_TOGETHER = 3


def kind(
    name: str,
    group: str,
    *,
    hits: tuple[str, ...] = SERVICES,
    seconds: tuple[float, float] = (1.0, 6.0),
    needs: tuple[str, ...] = (),
    alone: bool = False,
    once: bool = False,
) -> Callable[[Callable[[World, Random], Iterator[None]]], Hurt]:
    """Register a generator function as a kind of fault."""

    def register(function: Callable[[World, Random], Iterator[None]]) -> Hurt:
        assert name not in KINDS, f"two kinds of faults are called {name}"
        hurt = contextmanager(function)
        KINDS[name] = Kind(name, group, hurt, hits, seconds, frozenset(needs), alone, once)
        return hurt

    return register


def possible(has: frozenset[str]) -> list[Kind]:
    """The kinds that a world with these abilities can suffer, by name. Loads every file of kinds."""
    from fault_suite import (
        kinds_changes,
        kinds_disk,
        kinds_kafka,
        kinds_links,
        kinds_load,
        kinds_processes,
        kinds_silence,
    )

    assert kinds_changes and kinds_disk and kinds_kafka and kinds_links and kinds_load and kinds_processes
    assert kinds_silence
    return [KINDS[name] for name in sorted(KINDS) if KINDS[name].needs <= has]


def kills(kinds: list[Kind], chance: Random) -> list[tuple[Kind, ...]]:
    """Rounds in which each process is killed once, three at a time, in an order by seed."""
    deck = [each for each in kinds if each.name.startswith("kill -9") and "slow start" not in each.name]
    chance.shuffle(deck)
    return [tuple(deck[first : first + _TOGETHER]) for first in range(0, len(deck), _TOGETHER)]


def choose(kinds: list[Kind], chance: Random, rounds: int) -> list[tuple[Kind, ...]]:
    """For each round one kind, or two or three at once.

    Each kind comes once before any comes again. There are fewer rounds when all kinds come once only.
    """
    plan: list[tuple[Kind, ...]] = []
    deck: list[Kind] = []
    spent: set[str] = set()
    while len(plan) < rounds:
        if not deck:
            deck = [each for each in kinds if not (each.once and each.name in spent)]
            chance.shuffle(deck)
        if not deck:
            break
        first = deck.pop()
        together = [first]
        if not first.alone:
            for _ in range(chance.choice((0, 0, 1, 1, 2))):
                others = [each for each in deck if not each.alone and each.group != first.group]
                if others:
                    together.append(others[-1])
                    deck.remove(others[-1])
        spent |= {each.name for each in together}
        plan.append(tuple(together))
    return plan
