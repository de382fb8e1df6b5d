"""``./run release [--dry-run] VERSION``: everything that a release consists of, in dist/.

The version and the changelog are changed in a copy of the committed tree, and the artifacts are made from
that copy. Without ``--dry-run`` the same changes are then written into this checkout, to be reviewed,
committed and tagged: nothing is pushed or uploaded.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
CHANGED = ("pyproject.toml", "CHANGELOG.md", "deploy/helm/event-hub/Chart.yaml")
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_PYTHON = re.compile(
    r"^([a-z0-9][a-z0-9._-]*)==([^ ;\\\n]+)[^\n]*((?:\n\s+--hash=sha256:[0-9a-f]{64}[^\n]*)*)", re.MULTILINE
)


class NoRelease(Exception):
    """The release cannot be made; the message has the way out."""


def changed(name: str, text: str, version: str, day: str) -> str:
    """Return a file of ``CHANGED`` for the new version. Raises NoRelease."""
    if name == "CHANGELOG.md":
        if not section(text, "Unreleased"):
            raise NoRelease("CHANGELOG.md has nothing below [Unreleased]: there is nothing to release")
        return text.replace("## [Unreleased]\n", f"## [Unreleased]\n\n## [{version}] - {day}\n", 1)
    pattern = r'^version = ".*"$' if name == "pyproject.toml" else r"^(version|appVersion): .*$"
    new = f'version = "{version}"' if name == "pyproject.toml" else rf"\1: {version}"
    return re.sub(pattern, new, text, count=0 if name.endswith("Chart.yaml") else 1, flags=re.MULTILINE)


def section(changelog: str, version: str) -> str:
    """Return the text below the heading of a version; "" without one."""
    found = re.search(
        rf"^## \[{re.escape(version)}\][^\n]*\n(.*?)(?=^## \[|\Z)", changelog, re.MULTILINE | re.DOTALL
    )
    return "" if found is None else found.group(1).strip()


def check_version(version: str, last: str) -> None:
    """Raise NoRelease unless ``version`` is three numbers and not older than ``last``."""
    if _VERSION.fullmatch(version) is None:
        raise NoRelease(f"{version!r} is not a version: write MAJOR.MINOR.PATCH, such as 0.2.0")
    if _numbers(version) < _numbers(last):
        raise NoRelease(f"{version} is older than {last}, the version in pyproject.toml")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def bill_of_materials(locks: Path, version: str, at: str) -> dict[str, Any]:
    """Return the locked packages and jars as CycloneDX 1.6 (https://cyclonedx.org/docs/1.6/json)."""
    components = [*_packages(locks / "runtime.txt"), *_jars(locks / "jars.toml")]
    hub = {"type": "application", "name": "event-hub", "version": version}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"timestamp": at, "component": {**hub, "bom-ref": f"pkg:pypi/event-hub@{version}"}},
        "components": sorted(components, key=lambda each: str(each["purl"])),
    }


def _packages(lock: Path) -> Iterator[dict[str, Any]]:
    for name, version, hashes in _PYTHON.findall(lock.read_text()):
        found = sorted(re.findall(r"sha256:([0-9a-f]{64})", hashes))
        # The lock has the hashes of all wheels of a version; a component has those of its one file.
        more = {"hashes": [{"alg": "SHA-256", "content": found[0]}]} if len(found) == 1 else {}
        yield _component(name, version, f"pkg:pypi/{name}@{version}", more)


def _jars(lock: Path) -> Iterator[dict[str, Any]]:
    known = {
        (jar["group"], jar["artifact"], jar["version"]): jar for jar in tomllib.loads(lock.read_text())["jar"]
    }
    for (group, artifact, version), jar in known.items():
        more = {"group": group, "hashes": [{"alg": "SHA-256", "content": jar["sha256"]}]}
        yield _component(artifact, version, f"pkg:maven/{group}/{artifact}@{version}", more)


def _component(name: str, version: str, purl: str, more: dict[str, Any]) -> dict[str, Any]:
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl, **more}


def pack_chart(chart: Path, to: Path, version: str, at_s: int) -> None:
    """Write the chart as ``helm package`` does, with one time for all files: same input, same bytes."""

    def plain(info: tarfile.TarInfo) -> tarfile.TarInfo:
        info.mtime, info.uid, info.gid, info.uname, info.gname = at_s, 0, 0, "", ""
        return info

    name = to / f"event-hub-chart-{version}.tgz"
    with (
        name.open("wb") as raw,
        gzip.GzipFile("", "wb", fileobj=raw, mtime=at_s) as packed,
        tarfile.open(fileobj=packed, mode="w") as out,
    ):
        for path in sorted(each for each in chart.rglob("*") if each.is_file()):
            out.add(path, f"event-hub/{path.relative_to(chart).as_posix()}", filter=plain)


def checksums(folder: Path) -> str:
    """Return the lines of SHA256SUMS for the files of a folder."""
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name != "SHA256SUMS")
    return "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)


def make(version: str, dist: Path) -> dict[str, str]:
    """Make all artifacts in ``dist`` from the committed tree. Return the changed files by path. Raises
    NoRelease, CalledProcessError.
    """
    last = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    check_version(version, last)
    at_s = int(_git("show", "-s", "--format=%ct", "HEAD"))
    at = datetime.fromtimestamp(at_s, UTC)
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / f"event-hub-{version}"
        tree.mkdir()
        packed = subprocess.run(
            ["git", "-C", str(ROOT), "archive", "HEAD"], check=True, stdout=subprocess.PIPE
        )
        subprocess.run(["tar", "x", "-C", str(tree)], input=packed.stdout, check=True)
        texts = {
            name: changed(name, (tree / name).read_text(), version, f"{at:%Y-%m-%d}") for name in CHANGED
        }
        for name, text in texts.items():
            (tree / name).write_text(text)
        shutil.rmtree(dist, ignore_errors=True)
        dist.mkdir(parents=True)
        build = [_uv(), "build", "--quiet", "--no-build-isolation", "--python", sys.executable]
        build += ["--sdist", "--wheel", "-o", str(dist), str(tree)]
        environment = {"SOURCE_DATE_EPOCH": str(at_s), "PATH": "/usr/bin:/bin", "HOME": str(Path.home())}
        subprocess.run(build, check=True, env=environment)
        pack_chart(tree / "deploy/helm/event-hub", dist, version, at_s)
        bill = bill_of_materials(tree / "locks", version, at.isoformat())
    for unwanted in dist.glob(".*"):
        unwanted.unlink()
    (dist / f"event-hub-{version}.cdx.json").write_text(json.dumps(bill, indent=1) + "\n")
    (dist / f"CHANGELOG-{version}.md").write_text(section(texts["CHANGELOG.md"], version) + "\n")
    (dist / "SHA256SUMS").write_text(checksums(dist))
    return texts


def _git(*arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(ROOT), *arguments], check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _uv() -> str:
    own = ROOT / ".cache/uv/bin/uv"
    return str(own) if own.is_file() else shutil.which("uv") or "uv"


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run release", description=__doc__)
    parser.add_argument("version")
    parser.add_argument("--dry-run", action="store_true", help="change nothing in this checkout but dist/")
    given = parser.parse_args()
    dist = ROOT / "dist"
    try:
        texts = make(given.version, dist)
    except NoRelease as error:
        sys.exit(f"Error: {error}")
    for path in sorted(dist.iterdir()):
        print(f"{path.relative_to(ROOT)}  {path.stat().st_size} bytes")
    if not given.dry_run:
        for name, text in texts.items():
            (ROOT / name).write_text(text)
        print(
            f"changed {', '.join(texts)}: render with ./run manifests, commit, then: git tag v{given.version}"
        )


if __name__ == "__main__":
    main()
