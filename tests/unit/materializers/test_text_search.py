"""Full-text search: words, queries, highlights, and the index of SQLite against a search in plain Python."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import text_contract
from hypothesis import given
from hypothesis import strategies as st
from samples import fast_or

from hub.errors import CallerError
from hub.materializers.search.compiled import fts_query, ts_query, ts_rank_query, tsvector
from hub.materializers.search.highlights import highlights
from hub.materializers.search.text_index import GAP, TextIndex, field_indexes, text_index_of
from hub.materializers.search.text_query import Alternative, Term, TextQuery, TextQueryError, parse_query
from hub.materializers.search.words import Language, placed_words, words_of
from hub.materializers.stores.sql.text_search import SearchTooLong, TextSearchRequest
from hub.materializers.stores.sql_store import Store
from hub.runtime import die_with_parent

# ---- words


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Crème brûlée, 2 for 1!", ["creme", "brulee", "2", "for", "1"]),
        ("snake_case e-mail a.b@c.example", ["snake", "case", "e", "mail", "a", "b", "c", "example"]),
        ("don't", ["don", "t"]),
        ("東京タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("ﬁne ① ＷＩＤＥ", ["fine", "1", "wide"]),
        ("हिन्दी", ["हिन्दी"]),
        ("한국어", ["한국어"]),
        ("", []),
        ("\0 \ue000 🎉", []),
    ],
)
def test_a_word_is_a_run_of_letters_and_digits(text: str, words: list[str]) -> None:
    import unicodedata

    expected = [unicodedata.normalize("NFKD", word) if word in ("한국어",) else word for word in words]
    assert words_of(text) == expected


@given(st.text(max_size=80), st.sampled_from(["simple", "english"]))
def test_places_are_those_of_the_words(text: str, language: Language) -> None:
    placed = list(placed_words(text, language))
    assert [word for word, _, _ in placed] == words_of(text, language)
    # Each place, alone, is its word again; a ligature may belong to two words.
    for word, start, end in placed:
        assert word in words_of(text[start:end], language)


@given(st.text(max_size=60))
def test_words_of_words_are_the_same_words(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words


def test_stems_are_english_ones_only_if_asked_for() -> None:
    assert words_of("Running shoes", "english") == ["run", "shoe"]
    assert words_of("Running shoes") == ["running", "shoes"]


# ---- the language of queries


def _query(*alternatives: tuple[list[str], list[str]]) -> TextQuery:
    def term(text: str) -> Term:
        return Term(tuple(text.removesuffix("*").split()), text.endswith("*"))

    return TextQuery(
        tuple(
            Alternative(tuple(map(term, wanted)), tuple(map(term, unwanted)))
            for wanted, unwanted in alternatives
        )
    )


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("red shoes", _query((["red", "shoes"], []))),
        ('"red shoes" -blue', _query((["red shoes"], ["blue"]))),
        ("shi*", _query((["shi*"], []))),
        ('"red sh"*', _query((["red sh*"], []))),
        ("red OR blue -old", _query((["red"], []), (["blue"], ["old"]))),
        ("red or blue", _query((["red", "or", "blue"], []))),
        ("e-mail", _query((["e mail"], []))),
        ("red & blue -- ?", _query((["red", "blue"], []))),
        ('"AND"', _query((["and"], []))),
        ('-"a b" c', _query((["c"], ["a b"]))),
        ("red red", _query((["red"], []))),
        ("Café's", _query((["cafe s"], []))),
        ('f0:x {y} "NEAR" a^2', _query((["f0 x", "y", "near", "a 2"], []))),
    ],
)
def test_queries_that_mean_something(text: str, query: TextQuery) -> None:
    assert parse_query(text) == query


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no word"),
        ("?! -", "no word"),
        ("-red", "only excludes"),
        ("red OR -blue", "only excludes"),
        ("red OR", "one side of OR"),
        ("OR red", "one side of OR"),
        ('red "shoes', "character 5"),
        ("(red OR blue) shoes", "no parentheses"),
        ("red AND blue", '"AND" is not an operator'),
        ("red NOT blue", '"NOT" is not an operator'),
        ("*red", "at the end"),
        ("r*d", "at the end"),
        ("x" * 1_001, "characters"),
        (" ".join(f"w{n}" for n in range(33)), "33 terms"),
    ],
)
def test_anything_else_is_an_error_with_the_way_out(text: str, says: str) -> None:
    with pytest.raises(TextQueryError, match=says) as raised:
        parse_query(text)
    assert raised.value.hint and raised.value.code == "HUB-1481"


@given(st.text(max_size=60))
def test_no_sign_of_a_user_reaches_a_database(text: str) -> None:
    try:
        query = parse_query(text)
    except TextQueryError:
        return
    for term in (term for each in query.alternatives for term in (*each.wanted, *each.unwanted)):
        assert all(part.isalnum() or not part.isascii() for word in term.words for part in word)
        assert not any(sign in word for word in term.words for sign in "'\"\\:*&|!()<> \0")


# ---- compiled


def test_a_query_for_each_database() -> None:
    query = parse_query('"red sho"* -old OR hat')
    assert fts_query(query, (0, 2)) == '{f0 f2} : ((("red sho" *) NOT ("old")) OR ("hat"))'
    assert ts_query(query, (0, 2)) == (
        "((('ared' <-> 'asho':*) | ('cred' <-> 'csho':*)) & !('aold' | 'cold')) | (('ahat' | 'chat'))"
    )
    assert ts_rank_query(query, (1,)) == "(('bred' <-> 'bsho':*)) | ('bhat')"


def test_a_tsvector_keeps_fields_apart() -> None:
    assert tsvector([["red", "hat", "red"], ["red"]]) == "'ared':1A,3A 'ahat':2A 'bred':5B"
    assert tsvector([["red", GAP, "hat"]]) == "'ared':1A 'ahat':3A"
    assert tsvector([[], []]) == ""


def test_an_index_is_noted_so_that_earlier_releases_ignore_it() -> None:
    index = TextIndex(("title", "body"), "english")
    assert text_index_of(["city", index.spec]) == index
    assert field_indexes(["city", index.spec]) == ["city"]
    assert text_index_of(["city", 'text:[1,"klingon","title"]']) is None
    assert text_index_of(["city", 'text:[2,"simple","title"]']) is None  # built again
    assert text_index_of(["text"]) is None


# ---- highlights


def test_highlights_are_fragments_of_the_text_as_written() -> None:
    terms = parse_query('cafe "red sho"*', "simple").wanted
    found = highlights("<b>Café</b>: Red, Shoes!", terms, "simple")
    assert found == [("<b>", False), ("Café", True), ("</b>: ", False), ("Red, Shoes", True), ("!", False)]
    assert highlights("Blue", terms, "simple") == []
    assert highlights("He ran. Running", parse_query("runs", "english").wanted, "english") == [
        ("He ran. ", False),
        ("Running", True),
    ]
    assert highlights("aa ab", [Term(("aa", "ab")), Term(("ab",))], "simple") == [("aa ab", True)]


def test_a_long_text_is_shown_around_its_first_word() -> None:
    text = "filler " * 500 + "needle " + "filler " * 500
    found = highlights(text, [Term(("needle",))], "simple")
    assert found[0] == ("…", False) and found[-1] == ("…", False)
    assert ("needle", True) in found
    assert sum(len(part) for part, _ in found) < 260


@given(st.text(max_size=400), st.text(min_size=1, max_size=3))
def test_fragments_are_the_text_again(text: str, word: str) -> None:
    words = words_of(word)
    if words:
        found = highlights(text, [Term(tuple(words), True)], "simple")
        shown = "".join(part for part, _ in found if part != "…")
        assert shown in text


# ---- SQLite


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'store.db'}"


@pytest.mark.parametrize("seed", range(40 if "HUB_FAULT_SEEDS" in os.environ else fast_or(3, 12)))
def test_any_history_gives_what_a_plain_search_gives(url: str, seed: int) -> None:
    text_contract.any_history(lambda: Store(url), seed)


def test_rows_at_the_limits_of_an_index(url: str) -> None:
    text_contract.limits(lambda: Store(url))


def test_a_search_is_stopped_at_its_time_limit(url: str) -> None:
    model = text_contract.TextModel(lambda: Store(url), random.Random(1))
    model.declare(TextIndex(("title",)))
    model.apply([(f"k{n}", 1, {"title": f"word {n}", "body": None, "city": "x"}) for n in range(3_000)])
    wanted = TextSearchRequest(parse_query("word"), (0,), False)
    with pytest.raises(SearchTooLong, match="longer than 0 s"):
        model.store.text.search("v", wanted, [], 10, None, 0.0)
    assert len(model.store.text.search("v", wanted, [], 10, None, 30.0)) == 10  # the connection is usable
    model.store.close()


def test_only_texts_have_words(url: str) -> None:
    store = Store(url)
    schema = {"type": "record", "name": "v", "fields": [{"name": "n", "type": "long"}]}
    with pytest.raises(CallerError, match='field "n" is long') as raised:
        store.ensure_view("v", schema, [TextIndex(("n",)).spec], "t1")
    assert raised.value.code == "HUB-1483"
    store.ensure_view("v", schema, [], "t1")
    with pytest.raises(CallerError, match="no text index"):
        store.text.search("v", TextSearchRequest(parse_query("x"), (0,), True), [], 10, None, 5.0)
    store.close()


def test_views_whose_names_begin_alike_have_indexes_of_their_own(url: str) -> None:
    store = Store(url)
    views = ["a", "a_data", "a_content", "a@2", "a" * 63, "a" * 63 + "@2", "a" * 62]
    for place, view in enumerate(views):
        store.ensure_view(view, text_contract.schema(), [TextIndex(("title",)).spec], f"t{place}")
    for view in views:
        store.drop_view(view)
    assert not [name for name in text_contract.tables_of(store) if name.startswith("view_")]
    store.close()


# One process handles all lines of its input, because a writer's imports take longer than its work.
WRITER = """
import os
import random
import sys
sys.path.insert(0, sys.argv[2])
import text_contract
from hub.materializers.search.text_index import TextIndex
from hub.materializers.stores.sql_store import Store

def write(pid):
    chance = random.Random(pid)
    model = text_contract.TextModel(lambda: Store(sys.argv[1]), chance)
    version = model.store.newest_version("v") if "v" in model.store.views() else 0
    while True:
        version += 1
        model.declare(TextIndex(text_contract.FIELDS[: 1 + version % 3]))
        for _ in range(3):
            version += 1
            keys = chance.sample(range(400), 200)
            model.apply([(f"k{n}", version, None if n % 7 == 0 else text_contract.row(chance)) for n in keys])
            print(pid, flush=True)

while sys.stdin.readline():
    writer = os.fork()
    if writer == 0:
        write(os.getpid())
    os.waitpid(writer, 0)
    print("ended", flush=True)
"""


@pytest.mark.processes
def test_a_writer_that_is_killed_leaves_the_words_of_its_rows(url: str) -> None:
    tests = str(Path(text_contract.__file__).parent)
    process = subprocess.Popen(
        die_with_parent([sys.executable, "-c", WRITER, url, tests]),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    found = 0
    for batches in (1, 4, 9, 14):
        print("write", file=process.stdin, flush=True)
        writer = int(process.stdout.readline())
        for _ in range(batches):
            process.stdout.readline()
        os.kill(writer, signal.SIGKILL)
        while process.stdout.readline() != "ended\n":
            pass
        model = text_contract.TextModel(lambda: Store(url), random.Random(writer))
        known = model.store.view("v").text
        assert known is not None
        model.index = known.index
        with model.store.cut("v") as cut:
            model.rows = {
                key: (version, dict(zip(cut.types, values, strict=False)))
                for key, version, values in cut.rows()
            }
        found += model.check(25)
        model.store.close()
    assert found > 0
    process.communicate(timeout=20)
    assert process.returncode == 0
