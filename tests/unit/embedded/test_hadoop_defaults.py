"""The jar in the place of Hadoop's defaults: always the same file, for class archives remember it."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

from hub.config import Settings
from hub.embedded.hadoop_defaults import hadoop_defaults
from hub.embedded.jars import spark_classpath


def test_it_is_made_once_and_always_the_same(tmp_path: Path) -> None:
    first, second = (hadoop_defaults(Settings(cache=tmp_path / each)) for each in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert first.stat().st_mtime_ns == second.stat().st_mtime_ns
    made = first.stat().st_ino
    assert hadoop_defaults(Settings(cache=tmp_path / "a")).stat().st_ino == made
    assert [each.name for each in first.parent.iterdir()] == [first.name]


def test_it_stands_before_hadoops_own_and_leaves_out_all_that_is_not_needed(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path)
    jar, spark_jars = spark_classpath(settings, []).split(":")
    assert Path(jar) == hadoop_defaults(settings) and spark_jars.endswith("/jars/*")
    with zipfile.ZipFile(jar) as opened:
        kept = {name: len(ElementTree.fromstring(opened.read(name))) for name in opened.namelist()}
    assert kept == {
        "core-default.xml": 1,
        "core-site.xml": 0,
        "mapred-default.xml": 0,
        "mapred-site.xml": 0,
        "yarn-default.xml": 0,
        "yarn-site.xml": 0,
    }
