"""Contract of text searches, run by the unit tests on SQLite and by the integration tests on a real Postgres.

The expected rows come from a search in plain Python over the rows as written, which shares no code with
the hub: texts are made of known words, and a query is made together with the function that says what it
means.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from hub.materializers.search.text_index import TextIndex
from hub.materializers.search.text_query import parse_query
from hub.materializers.search.words import Language
from hub.materializers.stores.sql.text_search import TextSearchRequest
from hub.materializers.stores.sql_store import Store
from hub.materializers.stores.store import RowVersion, ViewBatch
from hub.record import Positions

# As written, and the words that they are: (simple, english).
VOCABULARY: Sequence[tuple[str, tuple[str, ...], tuple[str, ...]]] = (
    ("Red", ("red",), ("red",)),
    ("shoes", ("shoes",), ("shoe",)),
    ("SHOE", ("shoe",), ("shoe",)),
    ("Café", ("cafe",), ("cafe",)),
    ("cafe\u0301", ("cafe",), ("cafe",)),
    ("running", ("running",), ("run",)),
    ("run", ("run",), ("run",)),
    ("Straße", ("strasse",), ("strass",)),
    ("ΣΊΣΥΦΟΣ", ("σισυφοσ",), ("σισυφοσ",)),
    ("e-mail", ("e", "mail"), ("e", "mail")),
    ("東京", ("東", "京"), ("東", "京")),
    ("2026", ("2026",), ("2026",)),
    ("1e5", ("1e5",), ("1e5",)),
    ("http://a.example/x_y", ("http", "a", "example", "x", "y"), ("http", "a", "exampl", "x", "y")),
    ("or", ("or",), ("or",)),
    ("the", ("the",), ("the",)),
)
JOINTS = (" ", ", ", "\n", " -- ", " & ", ' "', "' ", " \\ ", "\0", " !:* ", " (", ") ")
FIELDS = ("title", "body", "note")
Matches = Callable[["Document"], bool]
# The words of each searched field.
Document = Sequence[Sequence[str]]
Row = dict[str, Any]


def schema() -> dict[str, Any]:
    fields = [{"name": name, "type": ["null", "string"], "default": None} for name in (*FIELDS, "city")]
    return {"type": "record", "name": "v", "fields": [*fields, {"name": "_version", "type": "long"}]}


def text(chance: random.Random) -> str | None:
    if chance.random() < 0.1:
        return None
    words = [chance.choice(VOCABULARY)[0] for _ in range(chance.randrange(8))]
    return "".join(word + chance.choice(JOINTS) for word in words)


def row(chance: random.Random) -> Row:
    return {**{name: text(chance) for name in FIELDS}, "city": chance.choice(["Oslo", "Bergen"])}


def plain_words(value: str | None, language: Language) -> list[str]:
    """Return the words of a text that is made of the vocabulary."""
    found: list[str] = []
    rest = value or ""
    longest = sorted(VOCABULARY, key=lambda each: -len(each[0]))
    while rest:
        for written, simple, english in longest:
            if rest.startswith(written):
                found += simple if language == "simple" else english
                rest = rest[len(written) :]
                break
        else:
            rest = rest[1:]
    return found


def any_query(chance: random.Random, language: Language) -> tuple[str, Matches]:
    """Return a query's text and its meaning."""
    parts = [_alternative(chance, language) for _ in range(chance.choice([1, 1, 1, 2, 3]))]
    return " OR ".join(body for body, _ in parts), lambda document: any(test(document) for _, test in parts)


def _alternative(chance: random.Random, language: Language) -> tuple[str, Matches]:
    wanted = [_term(chance, language) for _ in range(chance.choice([1, 1, 2, 3]))]
    unwanted = [_term(chance, language) for _ in range(chance.choice([0, 0, 1, 2]))]
    texts = [body for body, _ in wanted] + [f"-{body}" for body, _ in unwanted]
    chance.shuffle(texts)

    def meaning(document: Document) -> bool:
        return all(test(document) for _, test in wanted) and not any(test(document) for _, test in unwanted)

    return chance.choice([" ", "  & "]).join(texts), meaning


def _term(chance: random.Random, language: Language) -> tuple[str, Matches]:
    chosen = [chance.choice(VOCABULARY) for _ in range(chance.choice([1, 1, 2, 3]))]
    words = [word for each in chosen for word in (each[1] if language == "simple" else each[2])]
    written = chance.choice([" ", ", "]).join(each[0] for each in chosen)
    prefix = language == "simple" and chance.random() < 0.3
    if prefix:
        cut = chance.randint(1, len(chosen[-1][0]))
        shorter = chosen[-1][0][:cut]
        plain = [each for each in VOCABULARY if each[0].isascii() and each[0].isalnum()]
        if chosen[-1] in plain:
            words[-1] = shorter.lower()
            written = written[: len(written) - len(chosen[-1][0]) + cut]
    single = len(chosen) == 1 and " " not in written
    body = f'"{written}"' if not single or chance.random() < 0.3 else written
    body += "*" if prefix else ""

    def meaning(document: Document) -> bool:
        return any(_in_field(words, field, prefix) for field in document)

    return body, meaning


def _in_field(words: Sequence[str], field: Sequence[str], prefix: bool) -> bool:
    for at in range(len(field) - len(words) + 1):
        there = field[at : at + len(words)]
        if list(there[:-1]) == list(words[:-1]) and (
            there[-1].startswith(words[-1]) if prefix else there[-1] == words[-1]
        ):
            return True
    return False


class TextModel:
    """A store with one view, and the rows that it should have."""

    def __init__(self, open_store: Callable[[], Store], chance: random.Random) -> None:
        self.open_store, self.chance = open_store, chance
        self.store = open_store()
        self.rows: dict[str, tuple[int, Row | None]] = {}
        self.index: TextIndex | None = None
        self.offset = 0
        self.topic = "topic-1"

    def declare(self, index: TextIndex | None) -> bool:
        """Make the view's table have this index. Returns whether the table is new."""
        self.index = index
        noted = [] if index is None else [index.spec]
        return self.store.ensure_view("v", schema(), ["city", *noted], self.topic)

    def apply(self, changes: Sequence[tuple[str, int, Row | None]], below: int = 0) -> None:
        self.offset += 1
        batch = [RowVersion(key, version, 0, self.offset, values) for key, version, values in changes]
        at = Positions.of([("views.v", 0, self.offset)])
        self.store.apply([ViewBatch("v", batch, at, expire_below=below)])
        for key, version, values in changes:
            if version > self.rows.get(key, (0, None))[0]:
                self.rows[key] = (version, values)
        for key, (version, _) in self.rows.items():
            if version < below:
                self.rows[key] = (version, None)

    def expected(self, matches: Matches, fields: Sequence[int], city: str | None) -> set[str]:
        assert self.index is not None
        names = [self.index.fields[field] for field in fields]
        return {
            key
            for key, (_, values) in self.rows.items()
            if values is not None
            and (city is None or values["city"] == city)
            and matches([plain_words(values[name], self.index.language) for name in names])
        }

    def check(self, queries: int = 12) -> int:
        """Compare random queries, in pages. Returns how many rows were found."""
        if self.index is None:
            return 0
        total = 0
        for _ in range(queries):
            body, matches = any_query(self.chance, self.index.language)
            numbers = range(len(self.index.fields))
            fields = tuple(sorted(self.chance.sample(numbers, self.chance.randint(1, len(numbers)))))
            whole = len(fields) == len(numbers) and self.chance.random() < 0.5
            city = self.chance.choice([None, None, "Oslo"])
            wanted = TextSearchRequest(parse_query(body, self.index.language), fields, whole)
            found = list(self.pages(wanted, city, self.chance.choice([3, 50])))
            assert len(found) == len(set(found)), body
            expected = self.expected(matches, fields, city)
            differing = {key: self.rows[key] for key in sorted(expected ^ set(found))[:3]}
            assert set(found) == expected, (
                body,
                fields,
                whole,
                city,
                self.index,
                found,
                sorted(expected),
                differing,
            )
            total += len(found)
        return total

    def pages(self, wanted: TextSearchRequest, city: str | None, size: int) -> Iterator[str]:
        where = [] if city is None else [("city", "eq", city)]
        after: tuple[float, str] | None = None
        while page := self.store.text.search("v", wanted, where, size, after, 30.0):
            places = [(-each.score, each.row.key) for each in page]
            assert places == sorted(places) and all(each.score > 0 for each in page)
            assert after is None or places[0] > (-after[0], after[1])
            yield from (each.row.key for each in page)
            after = page[-1].score, page[-1].row.key


def any_history(open_store: Callable[[], Store], seed: int, steps: int = 14) -> None:
    """Random batches with replays, stale versions, deletes, sweeps, other indexes and restarts."""
    chance = random.Random(seed)
    model = TextModel(open_store, chance)
    model.declare(TextIndex(("title", "body")))
    keys = [f"k{n}" for n in range(chance.choice([8, 500]))]
    version = found = 0
    past: list[list[tuple[str, int, Row | None]]] = []
    for _ in range(steps):
        match chance.choice(["batch", "batch", "batch", "replay", "sweep", "index", "restart", "anew"]):
            case "batch":
                changes: list[tuple[str, int, Row | None]] = []
                for key in chance.sample(keys, chance.randint(1, len(keys))):
                    version += 1
                    at = chance.choice([version, max(1, version - 5)]) if key not in model.rows else version
                    changes.append((key, at, None if chance.random() < 0.2 else row(chance)))
                past.append(changes)
                model.apply(changes)
            case "replay" if past:
                model.apply(chance.choice(past))
            case "sweep":
                model.apply([], version // 2)
            case "index":
                names = chance.sample(FIELDS, chance.randint(1, 3))
                model.declare(
                    chance.choice([None, TextIndex(tuple(names), chance.choice(["simple", "english"]))])
                )
            case "restart":
                model.store.close()
                model.store = open_store()
            case "anew" if chance.random() < 0.3:
                model.topic, model.rows = f"topic-{version}x", {}
                assert model.declare(model.index)
            case _:
                model.declare(TextIndex(FIELDS))
        found += model.check()
    assert found > 0
    model.store.drop_view("v")
    assert [name for name in tables_of(model.store) if "view_v" in name] == []
    model.store.close()


def tables_of(store: Store) -> list[str]:
    from sqlalchemy import inspect

    return inspect(store.engine).get_table_names()


def limits(open_store: Callable[[], Store]) -> None:
    """Check rows at the limits of a tsvector: many words, many places of one, long words, many bytes."""
    model = TextModel(open_store, random.Random(0))
    model.declare(TextIndex(("title", "body")))
    many = " ".join(f"w{n}" for n in range(12_000))
    texts = {
        "many": (many, "beyond"),
        "often": ("shoe " * 5_000 + "red", None),
        "long": ("x" * 5_000, "y"),
        "large": (" ".join("東" + "é" * 60 + str(n) for n in range(9_000)), "last"),
        "wide": (" ".join(chr(0x10400 + 40) * 60 + str(n) for n in range(9_000)), "last"),
        "empty": ("", "?!"),
        "nul": ("a\0b", "' \\ : * & | !"),
        "k'ey\"%s": ("quoted", None),
    }
    rows = [(key, 1, {"title": a, "body": b, "city": "Oslo"}) for key, (a, b) in texts.items()]
    model.apply(rows)

    def keys(query: str) -> list[str]:
        wanted = TextSearchRequest(parse_query(query), (0, 1), True)
        return sorted(model.pages(wanted, None, 100))

    for query, expected in {
        "w0": ["many"],
        "w9999": ["many"],
        "w10000": [],  # of a row, 10,000 words are indexed
        "beyond": [],
        "shoe": ["often"],
        '"shoe shoe shoe"': ["often"],
        '"shoe red"': [],  # places of a word beyond the 255th are not kept
        "red": ["often"],
        "x" * 200: ["long"],
        "x" * 64: ["long"],
        "x" * 63: [],
        "y": ["long"],
        "a": ["nul"],
        '"a b"': ["nul"],
        "quoted": ["k'ey\"%s"],
        "é*": ["large"],
        "東": ["large"],
    }.items():
        assert keys(query) == expected, query[:80]
    model.store.close()
