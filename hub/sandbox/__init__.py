"""Sandbox of Python functions of views: rules that a process puts on itself, and that it cannot take off.

A worker of Spark enters before it receives the first byte of a view. The kernel enforces the rules, and child
processes cannot exist. An audit hook of Python only turns a refusal into a clear message::

    hub.yaml ─▶ Fences (rules.py) ─▶ variable HUB_SANDBOX ─▶ worker ─▶ enter.py
                                                                      ├ environment: an allow-list
                                                                      ├ rlimits: memory, core files
                                                                      ├ capabilities dropped, no_new_privs
                                                                      ├ Landlock: files that can be read
                                                                      └ seccomp: system calls that are refused

    rules.py        [core]  the rules, and the limits of one view
    environment.py  [core]  variables that a worker keeps
    syscalls.py     [core]  numbers of system calls on x86_64 and aarch64
    bpf.py          [core]  the seccomp filter as a program
    platforms.py    [core]  rules that a platform cannot enforce
    kernel.py       [edge]  Landlock, seccomp, capabilities: calls of the kernel
    enter.py        [edge]  put the rules on this process
    refusals.py     [edge]  the rule behind an error
    cpu_limit.py    [edge]  processor time of one call
    user_code.py    [edge]  the file of a view, run from its text
    load_check.py   [edge]  a process that only loads such a file
    launch.py       [edge]  a process tree with files and a network of its own, which plans a PySpark view

The reasons are in docs/adr/0070-sandbox.md, and docs/explanation/sandbox.md has the threat model.
"""
