"""A worker and the file that it works by: what is wrong in a changed one harms nothing that runs."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from hub.errors import ConfigError
from hub.replication.worker import worker


def test_a_changed_file_that_names_what_is_not_there_leaves_the_former_one_at_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, stop = tmp_path / "mirrors.yaml", threading.Event()
    file.write_text("one")
    began: list[Any] = []

    class Fleets:
        def __init__(self, text: str, clusters: Any, **_: Any) -> None:
            began.append((text, clusters))

        def start(self) -> None:
            """Each time the file changes once more; the second change is a good one."""
            if len(began) == 3:
                stop.set()
            file.write_text(("two, whose variable is not set", "three, longer again", "")[len(began) - 1])

        def stop(self) -> None: ...

    def reach(text: str, *_: Any) -> str:
        if text.startswith("two"):
            raise ConfigError('cluster "tok": the variable TOK_PASSWORD is not set')
        return f"clusters of {text}"

    monkeypatch.setattr(worker, "Worker", Fleets)
    monkeypatch.setattr(worker, "reach_all", reach)
    monkeypatch.setattr(worker, "load", Path.read_text)
    monkeypatch.setattr(worker, "checked", lambda text: text)
    monkeypatch.setattr(worker, "mask_secrets", lambda text, environ: {})
    monkeypatch.setattr(worker, "FILE_S", 0.01)
    worker.run(file, {}, stop)
    three = "three, longer again"
    assert began == [("one", "clusters of one")] * 2 + [(three, f"clusters of {three}")]
