"""[edge] A jar before all others that has almost none of Hadoop's defaults in it.

Hadoop's own are 460 kB of XML with 1,100 settings, for clusters and clouds. Spark parses them in each task that decodes Avro, and
writes all of them, each compressed by itself, into each batch that has state. What the hub's queries touch of Hadoop is a local
or shared folder, and for that the code has a default for everything but what stands below. Of the ``-site`` files there are none,
and they were looked for in three hundred jars each time.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

from hub.config import Settings

_LOCAL = "<property><name>fs.AbstractFileSystem.file.impl</name><value>org.apache.hadoop.fs.local.LocalFs</value></property>"
_FILES = {
    f"{part}-{kind}.xml": f"<configuration>{_LOCAL if (part, kind) == ('core', 'default') else ''}</configuration>\n"
    for part in ("core", "mapred", "yarn")
    for kind in ("default", "site")
}


def hadoop_defaults(settings: Settings) -> Path:
    """The jar, made where it is missing. Of one content always the same file: class archives remember its time."""
    name = hashlib.sha256(repr(_FILES).encode()).hexdigest()[:16]
    path = settings.cache.expanduser().absolute() / "classes" / f"hadoop-defaults-{name}.jar"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_suffix(f".{os.getpid()}.part")
        with zipfile.ZipFile(part, "w") as jar:
            for entry, text in _FILES.items():
                jar.writestr(zipfile.ZipInfo(entry), text)
        os.utime(part, (0, 0))
        part.replace(path)
    return path
