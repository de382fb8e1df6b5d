"""[edge] pyspark: the setting ``transforms``, as a session carries it to where functions are registered."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from hub.config import Settings
from hub.errors import HubFault
from hub.sandbox.rules import Fences

DAEMON = "hub.materializers.spark.functions.daemon"
_KEY = "spark.hub.transforms"


@dataclass(frozen=True, slots=True)
class FunctionPolicy:
    """Rules for functions of views in a session. ``views``: folder of the views' files."""

    sandboxed: bool
    views: str
    memory_mb: int
    call_cpu_s: float
    load_timeout_s: float

    def fences(self, view: str) -> Fences | None:
        """Return the sandbox of a view; None if functions are trusted."""
        return Fences(view, (self.views,), self.memory_mb) if self.sandboxed else None


def policy_conf(settings: Settings) -> dict[str, str]:
    """Return the settings of Spark for functions of views."""
    policy = FunctionPolicy(
        settings.transforms != "trusted",
        str(settings.project.expanduser().absolute() / "views"),
        settings.python_memory_mb,
        settings.python_call_cpu_s,
        settings.build_timeout_s,
    )
    return {_KEY: json.dumps(asdict(policy)), "spark.python.daemon.module": DAEMON}


def policy_of(session: SparkSession) -> FunctionPolicy:
    """Return the policy that the session was opened with. Raises HubFault for a session without one."""
    text = session.sparkContext.getConf().get(_KEY)
    if text is None:
        raise HubFault(f"a session without {_KEY} cannot register functions")
    return FunctionPolicy(**json.loads(text))


def file_beside(policy: FunctionPolicy, file: str) -> str:
    """Return the path of a view's Python file. Its folder need not exist on a cluster's executors."""
    return str(Path(policy.views) / file)
