"""[core] Numbers of system calls that the sandbox refuses, on x86_64 and aarch64.

Sources: ``asm/unistd_64.h`` and ``asm-generic/unistd.h`` of Linux 6.18. Calls from 424 on have one number on
all machines. None: the machine does not have the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

Numbers = tuple[int | None, int | None]

# Value of AUDIT_ARCH and place in a pair of numbers, by the name that the kernel gives a machine.
MACHINES: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1), "arm64": (0xC00000B7, 1)}
)

# Refused whatever the arguments. `socket` makes every later call of the network impossible; the others are
# refused for the connection to Spark, which the worker has.
NETWORK: Mapping[str, Numbers] = {
    "socket": (41, 198),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "accept": (43, 202),
    "accept4": (288, 242),
    # Requests of io_uring do not pass the filter of system calls.
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
}
PROCESSES: Mapping[str, Numbers] = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semctl": (66, 191),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "ioprio_set": (251, 30),
    "setpriority": (141, 140),
}
# Landlock has no rule for modes, owners, times and attributes, so the calls themselves are refused.
FILES: Mapping[str, Numbers] = {
    "creat": (85, None),
    "openat2": (437, 437),
    "truncate": (76, 45),
    "rename": (82, None),
    "renameat": (264, 38),
    "renameat2": (316, 276),
    "mkdir": (83, None),
    "mkdirat": (258, 34),
    "rmdir": (84, None),
    "link": (86, None),
    "linkat": (265, 37),
    "unlink": (87, None),
    "unlinkat": (263, 35),
    "symlink": (88, None),
    "symlinkat": (266, 36),
    "mknod": (133, None),
    "mknodat": (259, 33),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "utime": (132, None),
    "utimes": (235, None),
    "futimesat": (261, None),
    "utimensat": (280, 88),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    "inotify_init": (253, None),
    "inotify_init1": (294, 26),
    "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
}
SYSTEM: Mapping[str, Numbers] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "setns": (308, 268),
    "unshare": (272, 97),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "adjtimex": (159, 171),
    "clock_adjtime": (305, 266),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "iopl": (172, None),
    "ioperm": (173, None),
}
# Of a process that plans a PySpark view, which has Spark's JVM as its child: files are Landlock's task there.
REFUSED_IN_PLANNING: Mapping[str, Numbers] = {
    **SYSTEM,
    **{name: FILES[name] for name in ("open_by_handle_at", "name_to_handle_at", "fanotify_init")},
    **{name: NETWORK[name] for name in ("io_uring_setup", "io_uring_enter", "io_uring_register")},
    **{name: PROCESSES[name] for name in ("ptrace", "kcmp", "process_madvise", "pidfd_getfd")},
    **{name: PROCESSES[name] for name in ("process_vm_readv", "process_vm_writev")},
}
REFUSED: Mapping[str, Numbers] = {**NETWORK, **PROCESSES, **FILES, **SYSTEM}

# Refused by their arguments: bpf.py has the conditions.
OPEN: Numbers = (2, None)
OPENAT: Numbers = (257, 56)
CLONE: Numbers = (56, 220)
CLONE3: Numbers = (435, 435)
# Their first argument is a process: only this one may be named. 0 would be its whole group.
SIGNALS: Mapping[str, Numbers] = {"kill": (62, 129), "tgkill": (234, 131)}
# The same, and 0 is this process.
OWN_PROCESS_ONLY: Mapping[str, Numbers] = {
    "prlimit64": (302, 261),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "sched_setaffinity": (203, 122),
}
