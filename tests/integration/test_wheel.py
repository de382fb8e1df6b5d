"""A new user's first steps: install the built wheel in an empty folder, and follow the first tutorial line
by line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from patience import patient
from ports import free_pair, free_ports

ROOT = Path(__file__).parents[2]
UV = ROOT / ".cache/uv/bin/uv"
Run = Callable[[str], "subprocess.CompletedProcess[str]"]


def uv() -> str:
    """Path of the installer that ``./run`` fetched, else the one on the path."""
    return str(UV) if UV.is_file() else "uv"


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder with the programs of an environment that has the wheel and its locked packages,
    nothing of this checkout."""
    folder = tmp_path_factory.mktemp("installed")
    dist, venv = folder / "dist", folder / "venv"
    locks = [word for name in ("runtime", "java") for word in ("-r", str(ROOT / f"locks/{name}.txt"))]
    for arguments in (
        ("build", "--wheel", "--no-build-isolation", "--python", sys.executable, "-o", str(dist), str(ROOT)),
        ("venv", "--python", sys.executable, str(venv)),
        ("pip", "install", "--python", f"{venv}/bin/python", "--require-hashes", *locks),
    ):
        subprocess.run([uv(), *arguments, "--quiet"], check=True, timeout=patient(600))
    (wheel,) = dist.glob("*.whl")
    install = [uv(), "pip", "install", "--quiet", "--python", f"{venv}/bin/python", "--no-deps", str(wheel)]
    subprocess.run(install, check=True, timeout=patient(60))
    return venv / "bin"


def test_the_client_alone_is_small_and_the_command_line_names_what_is_missing(
    installed: Path, tmp_path: Path
) -> None:
    (wheel,) = (installed.parents[1] / "dist").glob("*.whl")
    constraints = tmp_path / "constraints.txt"
    locked = (ROOT / "locks/runtime.txt").read_text()
    constraints.write_text("\n".join(re.findall(r"^[a-z0-9-]+==[^ ;\\\n]+", locked, re.MULTILINE)))
    venv = tmp_path / "venv"
    for arguments in (
        ("venv", "--python", sys.executable, str(venv)),
        ("pip", "install", "--python", f"{venv}/bin/python", "-c", str(constraints), str(wheel)),
    ):
        subprocess.run([uv(), *arguments, "--quiet"], check=True, timeout=patient(120))
    packages = venv / f"lib/python3.{sys.version_info.minor}/site-packages"
    mb = (
        sum(each.stat().st_size for each in packages.rglob("*") if each.suffix != ".pyc" and each.is_file())
        / 1e6
    )
    assert mb < 20, sorted(each.name for each in packages.iterdir())
    client = [
        f"{venv}/bin/python",
        "-c",
        "from hub.client import Hub; Hub('http://127.0.0.1:9', retry=False).get('v', 'k')",
    ]
    refused = subprocess.run(client, capture_output=True, text=True, timeout=patient(60), check=False)
    assert "does not answer" in refused.stderr or "PeerError" in refused.stderr, refused.stderr
    command = subprocess.run(
        [f"{venv}/bin/hub", "status"], capture_output=True, text=True, timeout=60, check=False
    )
    assert command.returncode == 1
    assert "event-hub[all]" in command.stderr


@pytest.fixture
def run(installed: Path, tmp_path: Path) -> Iterator[Run]:
    """Run one command line in an empty folder, as a shell does that has nothing but the wheel's programs."""
    environment = {
        "PATH": f"{installed}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "HUB_CACHE": os.environ.get("HUB_CACHE", str(Path("~/.cache/hub").expanduser())),
        "HUB_HTTP_PORT": str(free_ports(1)[0]),
        "HUB_KAFKA_PORT": str(free_pair()),
        "HUB_START_TIMEOUT_S": str(patient(120)),
    }

    def one(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=patient(300),
            check=False,
        )

    yield one
    one("hub down")


def told(done: subprocess.CompletedProcess[str]) -> str:
    return f"{done.args}\n{done.stdout}\n{done.stderr}"


def test_the_first_tutorial_works_line_by_line_with_the_installed_wheel(run: Run, tmp_path: Path) -> None:
    text = (ROOT / "docs/tutorials/first-view.md").read_text()
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [line.replace("./run hub", "hub") for block in blocks for line in block.splitlines()]
    assert len(lines) > 8
    last = ""
    for line in lines:
        done = run(line)
        if line.startswith(("hub query", "hub sql")):  # the view is computed after the event is written
            done = until_rows(run, line, done)
        assert done.returncode == 0, told(done)
        last = done.stdout if line.startswith("hub query") else last
        if "topic publish tea.orders" in line and "paid" in line:
            paid(run)
            assert states(run)["views"] == "OK", states(run)
            assert "falling behind" not in run("hub logs materializer -n 1000").stdout
    assert "Ada" in last
    assert "no hub runs" in run("hub status").stdout
    assert not (tmp_path / ".hub/hub.pid").read_text()


def until_rows(
    run: Run, line: str, done: subprocess.CompletedProcess[str]
) -> subprocess.CompletedProcess[str]:
    deadline = time.monotonic() + patient(90)
    while (done.returncode != 0 or "(0 rows)" in done.stdout) and time.monotonic() < deadline:
        done = run(line)
    return done


def paid(run: Run) -> None:
    """Wait until the row equals the tutorial's."""
    deadline = time.monotonic() + patient(60)
    row: dict[str, object] = {}
    while row.get("paid_cents") != 450:
        assert time.monotonic() < deadline, row
        row = json.loads(run("hub query tea_members M-1 -o json").stdout)
        row = row.get("value", row)  # type: ignore[assignment]
    assert row["open_orders"] == 0


def states(run: Run) -> dict[str, str]:
    return {part["part"]: part["state"] for part in json.loads(run("hub status -o json").stdout)}


def test_every_example_of_the_wheel_can_be_started_from(run: Run) -> None:
    listed = run("hub init --list").stdout
    for name in ("customer-360", "sql-views", "empty"):
        assert name in listed
        assert run(f"eventhub init {name} --from {name}").returncode == 0
    tested = run("hub --project customer-360 view validate")
    assert tested.returncode == 0, told(tested)
