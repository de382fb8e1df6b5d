"""Generate odd YAML documents from a valid one, by seed.

A document is the valid one with a few nodes replaced by odd ones, or a text that no program writes: bytes
that are not UTF-8, alias bombs, brackets without end. The same seed gives the same documents.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

# Replacements for a value.
VALUES = [
    *("~", "null", "true", "off", "0", "-1", "1.5", ".nan", ".inf", "-.inf", "1e400", "0x" + "f" * 5_000,
    "9" * 400),
    *("9" * 5_000, "1_000", "0o17", "0b1", "190:20:30", ":".join(["59"] * 3_000), "-9223372036854775809",
    "1e-400"),
    *("2024-01-01", "2024-99-99", "2024-02-30 25:61:61", "0001-01-01T00:00:00+23:59",
    "9999-12-31T23:59:59-23:59"),
    *("2024-01-01 00:00:00 +99:99", "0000-00-00", "{}", "[]", "''", '""', "{? [a] : b}", "{? {a: b} : c}",
    "[[]: {}]"),
    *("{? : }", "{a: 1, a: 2}", "{<<: {a: b}}", ("{<<: [{a: b}, {c: "
    "d}]}"), "<<", "=", "{=: 1}", "{1: x, true: y, ~: z}"),
    *("&a x", "*a", "&a [*a]", "&a {b: *a}", "!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!null x",
    "!!binary ä"),
    *("!!binary gICA", "!!set {a, b}", "!!omap [a: 1]", "!!pairs [a: 1]", "!!str {a: b}", "!!map [a]",
    "!!seq {a: b}"),
    *("!!python/object:os.system x", "!!python/name:os.system", "!x y", "!<tag:yaml.org,2002:int> 5",
    "!!merge x"),
    *("!!int 0x", "!!int 0b2", "!!int ''", "!!float ''", "!!int '1:-2'", "!!value x", "!!str 5", "!!int [1]",
    "! x", "!!"),
    *(r'"\0"', r'"a\0b"', r'"\ud800"', r'"\udfff\ud800"', r'"\UFFFFFFFF"', r'"\U00110000"', r'"\x01"',
    r'"\x80"', r'"\uFFFE"'),
    *('"\\\n x"', "'a\n\n b'", '"' + "x" * 20_000 + '"', "[" * 45 + "]" * 45, "[" * 60 + "]" * 60,
    "{a: " * 60 + "1" + "}" * 60),
    *("[" + "x, " * 2_000 + "]", "{" + ", ".join(f"k{n}: {n}" for n in range(1_000)) + "}",
    "[" + "{}, " * 500 + "]"),
    *("/", "../../etc/passwd", "/dev/zero", "a/" * 3_000, ".", "..", "**", "*", "a.b..c", "x" * 300, "${X}",
    "${", "%n%s", "{0}"),
    *("'[[('", "'(a+)+$'", "'(" * 40, "\u202eabc", "'\u0000'", "\ufeff", "a\u2028b", "'" + "(" * 3_000 + "'",
    "1 +" * 500 + " 1"),
    *("500ms", "99999999999999999999d", "-5s", "1e9s", "5 parsecs", "7d", "0s", "100%", "200%",
    "5s for 1000%", "forever", "default"),
]  # fmt: skip
# Replacements for a key.
KEYS = [
    *(
        "? [a]\n",
        "? {a: b}\n",
        "? [a, [b, {c: d}]]\n",
        "? ",
        "? &a x",
        "? *a",
        "? !!int 5",
        "? !!binary gICA",
        "? !x y",
    ),
    *(
        "''",
        "~",
        "true",
        "1",
        "1.5",
        "2024-01-01",
        "<<",
        "=",
        r'"\0"',
        r'"\ud800"',
        '"' + "k" * 2_000 + '"',
        "? |\n  a\n",
    ),
    *(
        "'a b'",
        "a.b",
        "'**'",
        "'*'",
        "_x",
        "X",
        "ä",
        "'\u202e'",
        "on",
        "9" * 5_000,
        ".inf",
        "'[key]'",
        "'x'",
        "'__class__'",
    ),
]
# Whole documents.
TEXTS: list[bytes] = [
    *(b"", b"\n", b"#", b"---", b"--- a\n--- b\n", b"...", b"%YAML 9.9\n--- a", b"%TAG ! x\n--- !a b",
    b"%X\n---\n", b"\t", b"a:\tb"),
    *(b"? [a]\n: b\n", b"? {a: b}\n: c\n", b"? ? ? a\n", b"- a", b"a", b"5", b"[", b"{", b"}", b"a: b: c",
    b"a\nb: c", b"\xff\xfe"),
    *(b"a: \xc3\x28", b"a: \xed\xa0\x80", b"a: \xf4\x90\x80\x80", b"\xef\xbb\xbfa: b",
    "a: b".encode("utf-16"), "a: ä".encode("latin-1")),
    *(b"\0", b"a: \0", b"a: \x07", b"\x1b[31m", b"a: \xc2\x85b", b"a: !<" + b"x" * 5_000 + b"> b",
    b"!!set {a}", b"!!omap [a: b]"),
    *(b"&a [*a]", b"&a {<<: *a}", b"a: &a [x]\n" + b"".join(b"%c: &%c [*%c, *%c]\n" % (n + 1, n + 1, n, n)
    for n in range(97, 121))),
    *(b"[" * 20_000, b"{a: " * 20_000, b"- " * 20_000, b"? " * 20_000, b"? [" * 5_000, b"!!x " * 5_000,
    b"&a " * 2_000, b"'" * 9_999),
    *(b"".join(b" " * n + b"a:\n" for n in range(900)), b"a: |\n" + b" x\n" * 5_000, b"a: >9\n x",
    b"a: >-+\n x", b"a: |0\n x"),
    *(b"a: " + b"9" * 20_000, b"a: 0x" + b"f" * 20_000, b"a: " + b"59:" * 9_000 + b"1",
    b"a: " + b"1_" * 9_000, b"x" * 1_100_000),
    *(b"\n" * 20_000, b"# " * 10_000, b"a:\n" * 2_000, b"k: v\n" * 1_000, b"".join(b"k%d: v\n" % n
    for n in range(1_000))),
]  # fmt: skip


def documents(valid: object, seed: int, number: int) -> Iterator[bytes]:
    """Yield ``number`` documents: each whole odd one, then variations of the valid document."""
    chance = random.Random(seed)
    for at in range(number):
        if at < len(TEXTS):
            yield TEXTS[at]
        elif chance.random() < 0.1:
            yield _scrambled(_variation(valid, chance).encode("utf-8", "replace"), chance)
        else:
            yield _variation(valid, chance).encode("utf-8", "replace")


def _variation(valid: object, chance: random.Random) -> str:
    """Return the document in flow style, with up to three odd nodes on average."""
    return _text(valid, chance, chance.choice([0.5, 1.0, 2.0, 3.0]) / max(1, _size(valid))) + "\n"


def _size(value: object) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + _size(each) for each in value.values())
    return 1 + sum(map(_size, value)) if isinstance(value, list) else 1


def _text(value: Any, chance: random.Random, odds: float) -> str:
    if chance.random() < odds:
        return _odd(value, chance, odds)
    if isinstance(value, dict):
        return "{" + ", ".join(_pair(key, each, chance, odds) for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_text(each, chance, odds) for each in value) + "]"
    return _scalar(value)


def _pair(key: str, value: object, chance: random.Random, odds: float) -> str:
    name = chance.choice(KEYS) if chance.random() < odds else _scalar(key)
    pair = f"{name} : {_text(value, chance, odds)}"
    return f"{pair}, {pair}" if chance.random() < odds / 4 else pair


def _odd(value: object, chance: random.Random, odds: float) -> str:
    match chance.randrange(8):
        case 0:
            return f"[{_text(value, chance, odds)}]"
        case 1:
            return f"{{x: {_text(value, chance, odds)}}}"
        case 2:
            return (
                f"{chance.choice(['!!int', '!!str', '!!map', '!!seq', '!!binary', '!x', '&a'])} "
                f"{_scalar('x')}"
            )
        case _:
            return chance.choice(VALUES)


def _scalar(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value) if isinstance(value, int | float) else "'" + str(value).replace("'", "''") + "'"


def _scrambled(text: bytes, chance: random.Random) -> bytes:
    """Return the text with a few bytes exchanged, blanked or doubled."""
    found = bytearray(text[:4_000])
    for _ in range(chance.randint(1, 6) if found else 0):
        at = chance.randrange(len(found))
        match chance.randrange(3):
            case 0:
                found[at] = chance.randrange(256)
            case 1:
                found[at : at + 1] = b" "
            case _:
                found[at:at] = found[at : at + chance.randint(1, 40)]
    return bytes(found)
