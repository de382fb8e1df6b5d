"""A supervised hub of a test's own, with checkpoints of real-time mode that are near: views are switched as a
user does it, and its processes are killed between two checkpoints."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
from pipeline import Pipeline, wait_until
from processes import own_settings

from hub.cli.platform.up import children
from hub.config import Settings
from hub.embedded import ensure_jars
from hub.supervisor import Supervisor

CHECKPOINT_S = 6.0


def killed(sample: str) -> tuple[str, ...]:
    """Return the processes to kill, one after the other: with HUB_FAULT_SEEDS all, else the ``sample``. A
    restart of Spark takes a quarter of a minute of all cores.
    """
    return ("spark", "materializer") if "HUB_FAULT_SEEDS" in os.environ else (sample,)


class Hub:
    """A hub that runs until ``supervisor`` is stopped."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.supervisor = Supervisor(settings.home, print)

    def start(self) -> None:
        for child in children(self.settings):
            self.supervisor.start(child)
        self.pipeline = Pipeline(self.settings, self.settings.url, meanwhile=self.supervisor.step)

    def until(
        self, done: Callable[[], bool], timeout_s: float, say: Callable[[], str] = lambda: "no"
    ) -> None:
        def looked_after() -> bool:
            self.supervisor.step()
            return done()

        wait_until(looked_after, timeout_s, say)

    def write_view(self, name: str, text: str) -> None:
        (self.settings.project / "views" / f"{name}.yaml").write_text(text)

    def switch(self, view: str, mode: str) -> None:
        """Change the view's mode by editing its file, as users do."""
        file = self.settings.project / "views" / f"{view}.yaml"
        lines = [line for line in file.read_text().splitlines() if not line.startswith("mode:")]
        file.write_text("\n".join([lines[0], f"mode: {mode}", *lines[1:], ""]))

    def switch_json(self, view: str, mode: str) -> None:
        """Change the view's mode in a file that is JSON."""
        file = self.settings.project / "views" / f"{view}.yaml"
        file.write_text(json.dumps({**json.loads(file.read_text()), "mode": mode}))

    def remove_views(self, *views: str) -> None:
        """Remove views, so that the next ones can use their resources."""
        for view in views:
            (self.settings.project / "views" / f"{view}.yaml").unlink(missing_ok=True)

    def restarts_of_spark(self) -> int:
        """Return how often Spark was restarted with a wider session."""
        return (self.settings.logs / "materializer.log").read_text().count("Spark starts again with")

    def reaches(self, view: str, state: str) -> None:
        self.until(
            lambda: self.pipeline.state(view).get("state") == state,
            300.0,
            lambda: f"{view} is not {state}: {self.pipeline.state(view)}",
        )

    def flows(self, view: str) -> None:
        """Wait until rows were written that no checkpoint covers, which is when a crash matters. Another
        thread must write events.
        """

        def uncovered() -> bool:
            topic = self.pipeline.state(view).get("changelog") or f"views.{view}"
            end = self.pipeline.cluster.end_offsets([topic])
            told = (self.pipeline.state(view).get("last_batch") or {}).get("changelog", {})
            return sum(offset for _, offset in end) > sum(told.values()) + 20

        self.until(uncovered, 240.0, lambda: f"{view} writes nothing: {self.pipeline.state(view)}")

    def kill(self, victim: str) -> None:
        """SIGKILL the ``materializer``, or Spark's JVM below it."""
        materializer = psutil.Process(self.supervisor.pids()["materializer"])
        if victim == "materializer":
            materializer.kill()
            return
        next(each for each in materializer.children(recursive=True) if "java" in each.name()).kill()


Kind = TypeVar("Kind", bound=Hub)


@contextmanager
def running_hub(folder: Path, kind: type[Kind] = Hub, **more: Any) -> Iterator[Kind]:  # type: ignore[assignment]
    """One with Kafka, server, Spark and applier of its own."""
    # What is warmed up is speed, which no test of this is about.
    given = {"realtime_checkpoint_s": CHECKPOINT_S, "realtime_warm_up_s": 2.0, **more}
    settings = own_settings(folder / "home", folder / "project", **given)
    (settings.project / "views").mkdir(parents=True)
    ensure_jars(settings)
    running = kind(settings)
    try:
        running.start()
        yield running
        running.pipeline.close()
    finally:
        running.supervisor.stop()
