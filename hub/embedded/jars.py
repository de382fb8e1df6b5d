"""[edge] Jars from a Maven repository, without Maven and without naming a host: Apache Ivy, out of PySpark's
jars.

Ivy's own default repository serves; a file ``~/.ivy2/ivysettings.xml`` (Ivy's usual place) points it to a
mirror. A jar is hashed before it gets its final name, and again before each use: one that differs from the
lock is refused. Verified jars stay, so an interrupted download continues with the next jar.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from hub.config import Settings
from hub.embedded.hadoop_defaults import hadoop_defaults
from hub.embedded.java import Java, find_java
from hub.embedded.lock import Jar, of_sets, parse_lock
from hub.errors import ConfigError, HubFault, PeerError
from hub.runtime import die_with_parent

FETCH_TIMEOUT_S = 900.0
DEBIAN_TRUST_STORE = Path("/etc/ssl/certs/java/cacerts")
PATTERN = "[artifact]-[revision].[ext]"

Progress = Callable[[int, int], None]
"""Called with (bytes so far, bytes in all) while jars arrive."""


def lock_path() -> Path:
    """Return the path of the lock file: in this package when installed, in ``locks/`` in the repository."""
    packaged = Path(__file__).with_name("jars.toml")
    return packaged if packaged.exists() else Path(__file__).parents[2] / "locks" / "jars.toml"


def ensure_jars(
    settings: Settings,
    sets: Sequence[str] = ("kafka", "spark"),
    progress: Progress | None = None,
    lock: Path | None = None,
) -> dict[str, list[Path]]:
    """The verified jars of each set, fetching into ``settings.cache/jars`` what is missing. ``lock``: another
    lock file than the hub's own.

    Two processes that ask at once wait for each other. Raises PeerError (HUB-3018) when the fetch fails,
    HubFault (HUB-5010) when a jar's checksum is not the locked one.
    """
    path = lock or lock_path()
    wanted = of_sets(parse_lock(path.read_text(), str(path)), sets)
    folder = settings.cache.expanduser().absolute() / "jars"
    folder.mkdir(parents=True, exist_ok=True)
    with _exclusive(folder / ".lock"):
        missing = [jar for jar in wanted if not (folder / jar.file_name).exists()]
        if missing:
            _fetch(find_java(settings), missing, folder, progress)
        for jar in wanted:
            verify(jar, folder / jar.file_name)
    return {name: [folder / jar.file_name for jar in wanted if jar.set == name] for name in sets}


def resolve_set(java: Java, set_name: str, roots: Sequence[tuple[str, str, str, bool]]) -> list[Jar]:
    """Return the jars that (group, artifact, version, with transitive dependencies) resolve to now, with
    their checksums. Raises PeerError (HUB-3018)."""
    with tempfile.TemporaryDirectory(prefix="hub-lock-") as name:
        folder = Path(name)
        descriptor, out = folder / "ivy.xml", folder / "out"
        descriptor.write_text(ivy_descriptor(roots))
        run_ivy(
            java,
            descriptor,
            folder / "cache",
            out,
            lambda: None,
            "[organisation]/[artifact]/[revision].[ext]",
        )
        found = []
        for path in sorted(out.glob("*/*/*.jar")):
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()
            found.append(Jar(set_name, path.parts[-3], path.parts[-2], path.stem, digest, len(content)))
        return found


def missing_jars(settings: Settings, sets: Sequence[str] = ("kafka", "spark")) -> list[Jar]:
    """Return the jars that ``ensure_jars`` would fetch."""
    folder = settings.cache.expanduser().absolute() / "jars"
    wanted = of_sets(parse_lock(lock_path().read_text(), str(lock_path())), sets)
    return [jar for jar in wanted if not (folder / jar.file_name).exists()]


def verify(jar: Jar, path: Path) -> None:
    """Raise HubFault (HUB-5010) unless the file's sha256 is the locked one."""
    with path.open("rb") as file:
        got = hashlib.file_digest(file, "sha256").hexdigest()
    if got != jar.sha256:
        raise HubFault(
            f'jar "{jar.coordinate}" in {path}: its sha256 is {got}, the lock requires '
            f"{jar.sha256}; it is not used",
            hint=f"remove it and start again: rm '{path}'; if it differs again, do not trust the "
            "repository it came from",
            code="HUB-5010",
        )


def _fetch(java: Java, missing: Sequence[Jar], folder: Path, progress: Progress | None) -> None:
    staging = folder / ".staging"
    shutil.rmtree(staging / "out", ignore_errors=True)
    staging.mkdir(exist_ok=True)
    descriptor = staging / "ivy.xml"
    descriptor.write_text(ivy_descriptor([(jar.group, jar.artifact, jar.version, False) for jar in missing]))
    # Ivy's cache keeps each jar that arrived whole, so a second try fetches only the rest.
    run_ivy(
        java,
        descriptor,
        staging / "cache",
        staging / "out",
        _watch(staging / "cache", missing, progress),
    )
    for jar in missing:
        arrived = staging / "out" / jar.file_name
        if not arrived.exists():
            raise PeerError(
                f'jar "{jar.coordinate}" did not arrive',
                hint="start again",
                code="HUB-3018",
            )
        try:
            verify(jar, arrived)
        except HubFault:
            shutil.rmtree(
                staging, ignore_errors=True
            )  # or the next try would take the same bytes from Ivy's cache
            raise
        os.replace(arrived, folder / jar.file_name)
    shutil.rmtree(staging, ignore_errors=True)


def ivy_descriptor(roots: Sequence[tuple[str, str, str, bool]]) -> str:
    """Return an ivy.xml that requests (group, artifact, version, with transitive dependencies)."""
    lines = "".join(
        f'<dependency org="{group}" name="{artifact}" rev="{version}" transitive="{str(transitive).lower()}"'
        f' conf="default->{"default" if transitive else "master"}"/>\n'
        for group, artifact, version, transitive in roots
    )
    # Two sets may lock two versions of one artifact; only what is resolved transitively picks one of them.
    conflicts = "" if any(root[3] for root in roots) else '<conflicts><manager name="all"/></conflicts>'
    return (
        '<ivy-module version="2.0"><info organisation="hub" module="jars"/>'
        '<configurations><conf name="default"/></configurations>\n'
        f"<dependencies>\n{lines}</dependencies>{conflicts}</ivy-module>\n"
    )


def run_ivy(
    java: Java,
    descriptor: Path,
    cache: Path,
    out: Path,
    tick: Callable[[], None],
    pattern: str = PATTERN,
) -> None:
    """Resolve the descriptor into ``out``; ``tick`` is called about five times a second.
    Raises PeerError (HUB-3018)."""
    own_settings = Path("~/.ivy2/ivysettings.xml").expanduser()
    command = [str(java.path), "-Xmx256m", "-XX:+UseSerialGC", *trust_options(), *proxy_options(os.environ)]
    command += ["-cp", str(pyspark_home() / "jars" / "*"), "org.apache.ivy.Main", "-warn"]
    command += ["-settings", str(own_settings)] if own_settings.exists() else []
    command += ["-cache", str(cache), "-ivy", str(descriptor), "-types", "jar", "bundle"]
    command += ["-retrieve", str(out / pattern)]
    log = descriptor.with_name("ivy.log")
    deadline = time.monotonic() + FETCH_TIMEOUT_S
    with log.open("w") as output:
        # Tied to this process: an Ivy that outlives a kill -9 would fetch into the folder of the next try.
        process = subprocess.Popen(
            die_with_parent(command), stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL
        )
        try:
            while process.poll() is None and time.monotonic() < deadline:
                tick()
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    tick()
    if process.returncode != 0:
        raise PeerError(
            f"fetching jars failed: {_cause(log.read_text())}",
            hint="check the network, HTTPS_PROXY and ~/.ivy2/ivysettings.xml, then start again: "
            f"what arrived is kept. Full log: {log}",
            code="HUB-3018",
        )


def trust_options() -> list[str]:
    """Return Java's options to trust the system's certificates: a Java with its own certificates does not
    know a company's.
    """
    return [f"-Djavax.net.ssl.trustStore={DEBIAN_TRUST_STORE}"] if DEBIAN_TRUST_STORE.exists() else []


def proxy_options(environ: os._Environ[str] | dict[str, str]) -> list[str]:
    """Java's proxy properties from HTTPS_PROXY, HTTP_PROXY and NO_PROXY, as every other client reads them."""
    options = []
    for scheme in ("https", "http"):
        value = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY") or ""
        proxy = urlsplit(value if "//" in value else f"//{value}")
        if proxy.hostname:
            options += [
                f"-D{scheme}.proxyHost={proxy.hostname}",
                f"-D{scheme}.proxyPort={proxy.port or 8080}",
            ]
    excluded = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if options and excluded:
        hosts = [
            f"*{host}" if host.startswith(".") else host
            for host in excluded.replace(" ", "").split(",")
            if host
        ]
        options.append(f"-Dhttp.nonProxyHosts={'|'.join(hosts)}")
    return options


def pyspark_home() -> Path:
    """PySpark's folder, found without the seconds that importing it costs."""
    spec = find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError(
            "the Python package pyspark is not installed",
            hint="./run help",
            code="HUB-1112",
        )
    return Path(spec.submodule_search_locations[0])


def spark_classpath(settings: Settings, jars: Sequence[Path]) -> str:
    """Return Spark's classpath: the replacement of Hadoop's defaults, PySpark's own jars, then ours."""
    return ":".join(map(str, [hadoop_defaults(settings), pyspark_home() / "jars" / "*", *jars]))


def _watch(cache: Path, missing: Sequence[Jar], progress: Progress | None) -> Callable[[], None]:
    total = sum(jar.size for jar in missing)

    def tick() -> None:
        if progress is not None:
            arrived = sum(_size(path) for path in cache.rglob("jars/*")) + sum(
                _size(path) for path in cache.rglob("bundles/*")
            )
            progress(min(arrived, total), total)

    return tick


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:  # Ivy renames a part to its jar when it is whole
        return 0


def _cause(log: str) -> str:
    """Return the line of Ivy's log that gives the reason, without its frame of colons."""
    lines = [line.strip(" \t:") for line in log.splitlines()]
    telling = [
        line for line in lines if any(w in line for w in ("not found", "Exception", "refused", "ERROR"))
    ]
    return (telling or [line for line in lines if line] or ["no output"])[0][:200]


@contextmanager
def _exclusive(path: Path) -> Iterator[IO[str]]:
    """Hold the file's lock; the kernel lets go of it when the process dies, however it dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
