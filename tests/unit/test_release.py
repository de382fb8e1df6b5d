"""What a release consists of: its version, its part of the changelog, its chart and its bill of materials."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
from pathlib import Path

import pytest
import yaml
from release import (
    CHANGED,
    ROOT,
    NoRelease,
    bill_of_materials,
    changed,
    check_version,
    checksums,
    pack_chart,
    section,
)


def test_the_files_of_the_checkout_take_a_new_version() -> None:
    files = {name: changed(name, (ROOT / name).read_text(), "7.8.9", "2030-01-02") for name in CHANGED}
    assert tomllib.loads(files["pyproject.toml"])["project"]["version"] == "7.8.9"
    chart = yaml.safe_load(files["deploy/helm/event-hub/Chart.yaml"])
    assert (chart["version"], chart["appVersion"]) == ("7.8.9", "7.8.9")
    log = files["CHANGELOG.md"]
    assert "## [7.8.9] - 2030-01-02" in log and section(log, "Unreleased") == ""
    assert section(log, "7.8.9") == section((ROOT / "CHANGELOG.md").read_text(), "Unreleased")
    with pytest.raises(NoRelease, match="nothing to release"):
        changed("CHANGELOG.md", log, "7.9.0", "2030-01-03")


@pytest.mark.parametrize("version", ["1", "0.2", "v0.2.0", "0.2.0rc1", "0.0.9"])
def test_a_version_is_three_numbers_and_goes_on(version: str) -> None:
    with pytest.raises(NoRelease, match=r"is not a version|is older than"):
        check_version(version, "0.1.0")
    check_version("0.1.0", "0.1.0")
    check_version("0.10.0", "0.9.0")


def test_the_bill_of_materials_has_every_locked_package_and_jar_once() -> None:
    bill = bill_of_materials(ROOT / "locks", "7.8.9", "2030-01-02T00:00:00+00:00")
    purls = [each["purl"] for each in bill["components"]]
    assert purls == sorted(set(purls))
    locked = re.findall(r"^([a-z0-9._-]+==[^ ]+)", (ROOT / "locks/runtime.txt").read_text(), re.MULTILINE)
    assert sum(purl.startswith("pkg:pypi/") for purl in purls) == len(set(locked)) > 50
    jars = tomllib.loads((ROOT / "locks/jars.toml").read_text())["jar"]
    by_purl = {each["purl"]: each for each in bill["components"]}
    for jar in jars:
        found = by_purl[f"pkg:maven/{jar['group']}/{jar['artifact']}@{jar['version']}"]
        assert found["hashes"] == [{"alg": "SHA-256", "content": jar["sha256"]}]
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6") and json.dumps(bill)


def test_the_packed_chart_is_the_chart_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        pack_chart(ROOT / "deploy/helm/event-hub", tmp_path / name, "7.8.9", 1_800_000_000)
    assert checksums(tmp_path / "one") == checksums(tmp_path / "other")
    with tarfile.open(tmp_path / "one" / "event-hub-chart-7.8.9.tgz") as packed:
        names = packed.getnames()
    assert {"event-hub/Chart.yaml", "event-hub/values.yaml"} <= set(names)
    assert all(name.startswith("event-hub/") for name in names)
