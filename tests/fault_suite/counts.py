"""Check the counts of completeness: while something is hurt nothing may be called missing, and at the end the
counts are those of the log.

``count_violations`` decides from the rows of ``/api/completeness``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import httpx2
from processes import run_hub

from fault_suite.model import ORDERS, PEOPLE
from fault_suite.world import World
from hub.record import Record

COUNTED = (ORDERS, PEOPLE)
_TROUBLE = ("SHORT", "MISMATCH", "EXCESS", "UNEXPLAINED")


def count_violations(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return every counted topic whose state says that records are missing, twice or others: none ever is."""
    return [
        f"completeness of {row['topic']} is {row['state']} ({row['cause']}), and every "
        "record is where it belongs"
        for row in rows
        if row["topic"] in COUNTED and row["state"] in _TROUBLE
    ]


def count(world: World) -> list[str]:
    """Count what is new with ``hub completeness run``; what it says when it fails."""
    told = {
        "HUB_HOME": str(world.settings.home),
        "HUB_PROJECT": str(world.settings.project),
        "HUB_BOOTSTRAP": world.settings.bootstrap,
        "HUB_REGISTRY_URL": world.settings.url,
        "HUB_EMBEDDED_KAFKA": "false",
    }
    done = run_hub(told, "completeness", "run", *COUNTED)
    return (
        [] if done.returncode == 0 else [f"hub completeness run: {done.stdout[-300:]} {done.stderr[-300:]}"]
    )


def shown(url: str, timeout_s: float = 20.0) -> list[Mapping[str, Any]]:
    """Read the topics' states from the page. Raises HTTPError."""
    answer = httpx2.get(f"{url}/api/completeness", params={"topics": "home.*"}, timeout=timeout_s)
    answer.raise_for_status()
    rows: list[Mapping[str, Any]] = answer.json()["rows"]
    return rows


def check_completeness(world: World, records: Mapping[str, Sequence[Record]]) -> list[str]:
    """Count, and compare the counts with the log and the page's states."""
    wrong = count(world)
    for topic in COUNTED:
        (row,) = httpx2.get(f"{world.settings.url}/api/audit", params={"topic": topic}, timeout=20.0).json()[
            "topics"
        ]
        if row["records"] != len(records[topic]) or row["unaudited"]:
            wrong.append(
                f"completeness of {topic}: {row['records']} records, the log has {len(records[topic])}"
            )
        tiers = {each["kind"]: each for each in row["tiers"]}
        if "mirror" not in tiers or tiers["mirror"]["state"] != "BALANCED":
            wrong.append(f"completeness of {topic}: the copy is not BALANCED: {tiers.get('mirror')}")
    return wrong + count_violations(shown(world.settings.url))
