"""The sandbox on this machine's kernel: every rule with real code, which a process of its own loads."""

from __future__ import annotations

import json
import os
import socket
import sys
import textwrap
from pathlib import Path

import pytest

from hub.sandbox.kernel import platform_of_process
from hub.sandbox.load_check import LoadFailure, check
from hub.sandbox.rules import Fences, Rule
from hub.sandbox.user_code import UserCode

PLATFORM = platform_of_process()
needs_kernel = pytest.mark.skipif(
    not (PLATFORM.landlock and PLATFORM.seccomp), reason=f"this kernel has only {PLATFORM.parts}"
)
TIMEOUT_S = 120.0


@pytest.fixture
def views(tmp_path: Path) -> Path:
    """The folder of the views, beside the secrets of a hub."""
    for name in (".hub", ".ssh"):
        (tmp_path / name).mkdir()
    (tmp_path / ".ssh" / "id").write_text("of the user")
    (tmp_path / ".hub" / "key").write_text("of the hub")
    (tmp_path / "hub.yaml").write_text("admin_token: secret")
    folder = tmp_path / "views"
    folder.mkdir()
    (folder / "cities.json").write_text('{"ams": "Amsterdam"}')
    return folder


def load(
    views: Path, text: str, sandboxed: bool = True, memory_mb: int = 4_096, timeout_s: float = TIMEOUT_S
) -> LoadFailure | None:
    """Load a file of functions as the hub does."""
    code = UserCode("v", "f.py", str(views / "f.py"), textwrap.dedent(text), sandboxed)
    fences = Fences("v", (str(views),), memory_mb) if sandboxed else None
    return check(code, (), fences, timeout_s)


@needs_kernel
@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("open('/etc/passwd').read()", Rule.files),
        ("import os; os.listdir(os.path.expanduser('~root'))", Rule.files),
        ("import pathlib; (pathlib.Path(__file__).parents[1] / '.ssh' / 'id').read_text()", Rule.files),
        ("open('/proc/self/environ').read()", Rule.files),
        ("import pathlib; (pathlib.Path(__file__).parents[1] / '.hub' / 'key').read_text()", Rule.files),
        ("import pathlib; (pathlib.Path(__file__).parents[1] / 'hub.yaml').read_text()", Rule.files),
        ("import pyarrow.csv; pyarrow.csv.read_csv('/etc/passwd')", Rule.files),
        ("open('/tmp/of-a-function', 'w')", Rule.files),
        ("open(__file__, 'w')", Rule.files),
        ("import os, pathlib; os.chmod(pathlib.Path(__file__).parent, 0o777)", Rule.files),
        ("import os, pathlib; os.unlink(pathlib.Path(__file__).parent / 'cities.json')", Rule.files),
        ("import socket; socket.create_connection(('127.0.0.1', 9092))", Rule.network),
        ("import socket; socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)", Rule.network),
        ("import urllib.request; urllib.request.urlopen('http://169.254.169.254/')", Rule.network),
        ("import socket; socket.getaddrinfo('secret.example.org', 53)", Rule.network),
        ("import os; os.fork()", Rule.processes),
        ("import subprocess; subprocess.run(['id'])", Rule.processes),
        ("import multiprocessing as m; m.get_context('fork').Process(target=print).start()", Rule.processes),
        ("import os; os.execv('/bin/sh', ['sh'])", Rule.processes),
        ("import os; os.kill(os.getppid(), 9)", Rule.processes),
        ("x = bytearray(8 << 30)", Rule.memory),
    ],
)
def test_code_that_breaks_a_rule_is_stopped_and_the_rule_is_named(views: Path, text: str, rule: Rule) -> None:
    (views / "f.py").write_text("kept")
    found = load(views, f"import json\n\n{text}\n")
    assert isinstance(found, LoadFailure) and (found.rule, found.line) == (rule, 3), found
    assert (views / "f.py").read_text() == "kept" and (views / "cities.json").exists()
    assert views.stat().st_mode & 0o022 == 0 and not Path("/tmp/of-a-function").exists()


@needs_kernel
def test_the_kernel_refuses_what_goes_around_python(views: Path) -> None:
    """C's functions do not pass the audit hook, so these are refused by the kernel alone."""
    done = load(
        views,
        """
        import ctypes, errno, os
        c = ctypes.CDLL(None, use_errno=True)
        asked = {
            "socket": lambda: c.socket(2, 1, 0),
            "unix socket": lambda: c.socket(1, 1, 0),
            "netlink": lambda: c.socket(16, 3, 0),
            "fork": lambda: c.fork(),
            "vfork": lambda: c.syscall(58) if os.uname().machine == "x86_64" else c.fork(),
            "exec": lambda: c.execv(b"/bin/true", (ctypes.c_char_p * 2)(b"true", None)),
            "kill": lambda: c.kill(os.getppid(), 0),
            "kill its group": lambda: c.kill(0, 0),
            "ptrace": lambda: c.ptrace(16, os.getppid(), 0, 0),
            "write": lambda: c.open(b"/tmp/of-a-function", 0o101, 0o600),
            "chmod": lambda: c.chmod(b"/tmp", 0o777),
            "rename": lambda: c.rename(b"/tmp", b"/tmp2"),
            "unshare": lambda: c.unshare(0x10000000),
            "mount": lambda: c.mount(b"none", b"/tmp", b"tmpfs", 0, None),
            "io_uring": lambda: c.syscall(425, 1, ctypes.create_string_buffer(120)),
            "limits of its parent": lambda: c.prlimit(os.getppid(), 7, ctypes.create_string_buffer(16), None),
            "more memory": lambda: c.setrlimit(9, (ctypes.c_ulong * 2)(2**63, 2**63)),
            "new process by clone3": lambda: c.syscall(435, ctypes.create_string_buffer(88), 88),
        }
        allowed = [name for name, ask in asked.items() if ask() != -1]
        if allowed:
            raise AssertionError(allowed)
        """,
    )
    assert done is None, done


@needs_kernel
def test_honest_code_works(views: Path) -> None:
    done = load(
        views,
        """
        import asyncio, concurrent.futures, datetime, decimal, json, pathlib, re, zoneinfo
        import numpy, pandas, pyarrow, pyarrow.compute

        cities = json.loads((pathlib.Path(__file__).parent / "cities.json").read_text())
        assert cities == {"ams": "Amsterdam"}
        assert (numpy.ones((64, 64)) @ numpy.ones((64, 64))).sum() == 64**3
        assert pandas.DataFrame({"a": [1, 2]}).groupby("a").size().sum() == 2
        assert pyarrow.compute.sum(pyarrow.array([1, 2])).as_py() == 3
        assert datetime.datetime.now(zoneinfo.ZoneInfo("Europe/Berlin")).tzinfo
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            assert list(pool.map(abs, [-1, 2])) == [1, 2]
        assert asyncio.run(asyncio.sleep(0, 3)) == 3
        """,
    )
    assert done is None, done


@needs_kernel
def test_the_environment_has_no_secrets(views: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HUB_TOKEN", "s3cr3t-of-the-hub")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s3cr3t-of-the-cloud")
    monkeypatch.setenv("LC_TIME", "C.UTF-8")
    asked = """
        import ctypes, os
        assert os.environ["LC_TIME"] == "C.UTF-8"
        names = [name for name, value in os.environ.items() if "s3cr3t" in value]
        assert not names, names
    """
    assert load(views, asked) is None
    trusted = load(views, asked, sandboxed=False)
    assert trusted is not None and "HUB_TOKEN" in trusted.error


def test_code_that_does_not_end_is_stopped(views: Path) -> None:
    found = load(views, "while True:\n    pass\n", timeout_s=3.0)
    assert found is not None and found.rule == Rule.time


def test_trusted_code_has_the_rights_of_the_hub(views: Path) -> None:
    key = views.parent / ".hub" / "key"
    with socket.create_server(("127.0.0.1", 0)) as server:
        text = f"""
        import pathlib, socket, subprocess
        assert pathlib.Path({str(key)!r}).read_text() == "of the hub"
        socket.create_connection(("127.0.0.1", {server.getsockname()[1]})).close()
        subprocess.run([{sys.executable!r}, "-S", "-c", ""], check=True)
        """
        assert load(views, text, sandboxed=False) is None


def test_failures_of_a_file_have_their_line_and_no_rule(views: Path) -> None:
    found = load(views, "a = 1\nb = a / 0\n")
    assert found == LoadFailure("ZeroDivisionError: division by zero", 2, "")
    gone = check(UserCode("v", "f.py", "f.py", "del f", sandboxed=False), ("f",), None, TIMEOUT_S)
    assert gone is not None and "NameError" in gone.error
    ended = load(views, "import os\nos._exit(3)\n")
    assert ended is not None and "ended (3)" in ended.error


@needs_kernel
def test_a_library_that_wraps_the_error_hides_no_rule(views: Path) -> None:
    found = load(
        views,
        """
        try:
            open("/etc/shadow")
        except OSError as error:
            raise ValueError("no data") from error
        """,
    )
    assert found is not None and found.rule == Rule.files and found.error == "ValueError: no data"


def test_fences_are_read_as_they_were_written() -> None:
    fences = Fences("v@2", ("/views", "/with space"), 512)
    assert Fences.of_text(fences.text()) == fences
    with pytest.raises(ValueError, match="not complete"):
        Fences.of_text(json.dumps({"view": "v"}))


def test_sandboxed_code_does_not_run_outside_of_a_sandbox() -> None:
    with pytest.raises(RuntimeError, match="outside of their sandbox"):
        UserCode("v", "f.py", "f.py", "import os; os.environ['IT_RAN'] = '1'", sandboxed=True).names()
    assert "IT_RAN" not in os.environ
