"""[edge] First jar of the classpath, which replaces Hadoop's defaults with almost none.

Hadoop's defaults are 460 kB of XML with 1,100 settings, for clusters and clouds. Spark parses them in each
task that decodes Avro, and writes all of them, each compressed separately, into each batch that has state.
The hub's queries use only Hadoop's local or shared folders, for which the code has defaults for everything
but the settings below. The jar also answers the search for ``-site`` files, which do not exist and were
searched in three hundred jars each time.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

from hub.config import Settings

_LOCAL = "<property><name>fs.AbstractFileSystem.file.impl</name><value>org.apache.hadoop.fs.local.LocalFs</value></property>"  # noqa: E501
_FILES = {
    f"{part}-{kind}.xml": f"<configuration>{_LOCAL if (part, kind) == ('core', 'default') else ''}</configuration>\n"  # noqa: E501
    for part in ("core", "mapred", "yarn")
    for kind in ("default", "site")
}


def hadoop_defaults(settings: Settings) -> Path:
    """Return the path of the jar and create it if missing. The same content is always the same file, because
    class archives depend on its time.
    """
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
