"""[core] Text queries in the languages of the databases. Words have no signs.

FTS5 has a column for each field of an index (``f0``, ``f1``). A ``tsvector`` has one list of words, so each
word begins with a character of its field (``ashoe``: in the first field). ``fields``: the numbers of the
fields that are searched; a word in another field neither matches nor changes a score.
"""

from __future__ import annotations

from collections.abc import Sequence

from hub.materializers.search.text_index import GAP
from hub.materializers.search.text_query import Alternative, Term, TextQuery

# Weights of the fields of an index in their order, the same as those that ts_rank gives A, B, C and D.
WEIGHTS = (1.0, 0.4, 0.2, 0.1)
_LABELS = "ABCD"


def weight_of(field: int) -> float:
    return WEIGHTS[min(field, len(WEIGHTS) - 1)]


# ---- SQLite FTS5


def fts_columns(fields: int) -> list[str]:
    return [f"f{field}" for field in range(fields)]


def fts_query(query: TextQuery, fields: Sequence[int]) -> str:
    """Return the query for FTS5's MATCH."""
    columns = " ".join(f"f{field}" for field in fields)
    return f"{{{columns}}} : ({' OR '.join(map(_fts_alternative, query.alternatives))})"


def _fts_alternative(each: Alternative) -> str:
    found = "(" + " AND ".join(map(_fts_term, each.wanted)) + ")"
    if each.unwanted:
        found = f"({found} NOT ({' OR '.join(map(_fts_term, each.unwanted))}))"
    return found


def _fts_term(term: Term) -> str:
    return f'"{" ".join(term.words)}"' + (" *" if term.prefix else "")


# ---- Postgres


def tsvector(words: Sequence[Sequence[str]]) -> str:
    """Return the words of a row by field as the text of a tsvector. No phrase crosses two fields."""
    places: dict[str, list[str]] = {}
    place = 0
    for field, of_field in enumerate(words):
        character, label = _character(field), _LABELS[min(field, len(_LABELS) - 1)]
        for word in of_field:
            place += 1
            if word != GAP:
                places.setdefault(character + word, []).append(f"{place}{label}")
        place += 1
    return " ".join(f"'{word}':{','.join(at)}" for word, at in places.items())


def ts_query(query: TextQuery, fields: Sequence[int]) -> str:
    """Return the query as the text of a tsquery."""
    return " | ".join(_ts_alternative(each, fields) for each in query.alternatives)


def ts_rank_query(query: TextQuery, fields: Sequence[int]) -> str:
    """Return the wanted terms alone, any of them: what rows are ranked by."""
    return " | ".join(_ts_term(term, fields) for term in query.wanted)


def _ts_alternative(each: Alternative, fields: Sequence[int]) -> str:
    parts = [_ts_term(term, fields) for term in each.wanted]
    parts += [f"!{_ts_term(term, fields)}" for term in each.unwanted]
    return f"({' & '.join(parts)})"


def _ts_term(term: Term, fields: Sequence[int]) -> str:
    return "(" + " | ".join(_ts_phrase(term, _character(field)) for field in fields) + ")"


def _ts_phrase(term: Term, character: str) -> str:
    words = [f"'{character}{word}'" for word in term.words]
    if term.prefix:
        words[-1] += ":*"
    return words[0] if len(words) == 1 else f"({' <-> '.join(words)})"


def _character(field: int) -> str:
    return chr(ord("a") + field)
