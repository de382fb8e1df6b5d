"""[core] Rules that a platform cannot enforce, as sentences for people."""

from __future__ import annotations

from dataclasses import dataclass

from hub.sandbox.rules import Rule


@dataclass(frozen=True, slots=True)
class Platform:
    """Parts of the sandbox that a kernel offers. ``landlock``: version of its interface, 0 without it;
    ``networks``: a process can have a network of its own."""

    system: str
    machine: str
    landlock: int
    seccomp: bool
    networks: bool = False

    @property
    def parts(self) -> str:
        """Return the parts in words, such as ``Landlock 7, seccomp``."""
        found = [f"Landlock {self.landlock}"] if self.landlock else []
        found += ["seccomp"] if self.seccomp else []
        found += ["own networks"] if self.networks else []
        return ", ".join([*found, "limits of processes"])


_SIGNALS = 6  # the version of Landlock


@dataclass(frozen=True, slots=True)
class SandboxGap:
    """A rule that is not enforced, and the reason with the way out."""

    rule: Rule
    text: str


def gaps(platform: Platform) -> tuple[SandboxGap, ...]:
    """Return the rules that the kernel does not enforce here, in the order of ``Rule``."""
    if platform.system != "linux":
        way = "run the hub on Linux, or set `transforms: off`"
        return (
            SandboxGap(Rule.files, f"functions can read and write the hub's files: {way}"),
            SandboxGap(Rule.network, f"functions can open connections: {way}"),
            SandboxGap(Rule.processes, f"functions can start processes and signal others: {way}"),
            SandboxGap(Rule.system, f"functions can make every system call: {way}"),
        )
    found = []
    if not platform.landlock:
        what = "read, and without seccomp write," if not platform.seccomp else "read"
        found.append(
            SandboxGap(
                Rule.files,
                f"functions can {what} the files of the hub's user: the kernel has no Landlock "
                "(Linux 5.13 or later, with `landlock` in the boot parameter `lsm`)",
            )
        )
    if not platform.seccomp:
        why = f"there is no seccomp filter here (machine {platform.machine})"
        network = "send datagrams" if platform.landlock >= 4 else "open connections"
        found += [
            SandboxGap(Rule.network, f"functions can {network}: {why}"),
            SandboxGap(Rule.processes, f"functions can start processes: {why}"),
            SandboxGap(Rule.system, f"functions can make every system call: {why}"),
        ]
    if not platform.networks:
        found.append(
            SandboxGap(
                Rule.network,
                "functions of PySpark views can open connections while they are planned: "
                "the kernel or the container allows no user namespaces",
            )
        )
    if platform.landlock < _SIGNALS:
        found.append(
            SandboxGap(
                Rule.processes,
                "functions of PySpark views can signal processes of the hub's user while they are planned: "
                "Landlock has no rule for signals (Linux 6.12 or later)",
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class PythonOfViews:
    """State of the sandbox on this machine. ``transforms``: the setting; ``parts`` and ``gaps``: of the
    sandbox, empty without one."""

    transforms: str
    parts: str = ""
    gaps: tuple[SandboxGap, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Return False if functions can do what a rule forbids."""
        return self.transforms == "off" or (self.transforms == "sandboxed" and not self.gaps)

    @property
    def text(self) -> str:
        """Return one line for people."""
        if self.transforms == "off":
            return "off: views with Python are refused"
        if self.transforms == "trusted":
            return "trusted: functions run with the hub's rights"
        if not self.gaps:
            return f"sandboxed by {self.parts}"
        rules = ", ".join(dict.fromkeys(each.rule.value for each in self.gaps))
        return f"sandboxed by {self.parts}; not enforced in every case: {rules}"


def python_of_views(transforms: str, platform: Platform) -> PythonOfViews:
    """Return how Python of views runs with a setting of ``transforms`` on a platform."""
    if transforms != "sandboxed":
        return PythonOfViews(transforms)
    return PythonOfViews(transforms, platform.parts, gaps(platform))
