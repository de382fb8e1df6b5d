"""Produce requests: bodies split into records, the parts of a record, and repeated requests."""

from __future__ import annotations

import itertools
import json
import sys
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub.errors import CallerError, Conflict, NotFound, PeerError
from hub.record import Positions, Record
from hub.topics.gateway.idempotency import (
    AnswerMemory,
    FoundRequest,
    SearchedRequests,
    UnknownOutcomes,
    checked_key,
    checked_retry,
    fingerprint,
    found_in,
    mark,
    of_same_request,
)
from hub.topics.gateway.produce_request import (
    MOST_RECORD_BYTES,
    MOST_RECORDS,
    Busy,
    Data,
    Malformed,
    TooLarge,
    Unprocessable,
    event_of,
    headers_of,
    plain_bytes,
    record_of,
    records_of,
    status_of,
    timestamp_of,
    values_of,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 53),
    1 << 53) | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner, max_size=3),  # noqa: E501
    max_leaves=8,
)  # fmt: skip
OBJECTS = st.lists(st.dictionaries(st.text("ab"), JSON, max_size=3), min_size=1, max_size=5)


@given(OBJECTS, st.sampled_from(["", "\n", " ", "\r\n\n"]), st.sampled_from([None, 1]))
def test_objects_are_found_however_they_are_put_together(
    objects: list[Any], between: str, indent: int | None
) -> None:
    body = between.join(json.dumps(each, indent=indent) for each in objects).encode()
    assert [each[0] for each in values_of(body, lines=False) if not isinstance(each, CallerError)] == objects


@given(OBJECTS)
def test_lines_stand_for_themselves(objects: list[Any]) -> None:
    lines = list(itertools.chain.from_iterable((json.dumps(each), "{nonsense", "") for each in objects))
    found = list(values_of("\n".join(lines).encode(), lines=True))
    assert [each[0] for each in found[::2] if not isinstance(each, CallerError)] == objects
    assert all(isinstance(each, Malformed) for each in found[1::2])
    assert len(found) == 2 * len(objects)


@pytest.mark.parametrize(
    ("body", "before", "said"),
    [
        (b"", 0, "no record"),
        (b" \n ", 0, "no record"),
        (b"nonsense", 0, "record 0 of the body is not JSON"),
        (b'{"a":1} {"a":', 1, "record 1 of the body is not JSON"),
        (b"\xff", 0, "not UTF-8"),
        (b"[" * 200_000, 0, "too deep"),
        (b'{"a": NaN}', 0, "not JSON"),
    ],
)
def test_what_cannot_be_read_ends_the_body(body: bytes, before: int, said: str) -> None:
    found = list(values_of(body, lines=False))
    assert len(found) == before + 1
    assert isinstance(found[-1], Malformed) and said in found[-1].message


@pytest.mark.parametrize("lines", [False, True])
@pytest.mark.parametrize("number", [1 << 64, -(1 << 63) - 1, 12345678901234567890123456789])
def test_integers_of_more_than_64_bits_are_as_they_are(number: int, lines: bool) -> None:
    """Regression: they silently became doubles with 17 digits."""
    body = b'{"value": {"type": "JSON", "data": [%d, 1.5]}}\n' % number
    for count in (1, 2):
        for each in values_of(body * count, lines=lines):
            assert not isinstance(each, CallerError)
            asked = record_of(*each)
            assert asked.value.data == [number, 1.5]
            assert plain_bytes(asked.value, "value") == b"[%d,1.5]" % number
    with pytest.raises(Unprocessable, match=f"partition_id: {number}"):
        record_of({"partition_id": number}, 1)
    assert event_of({"id": number}, 1, "id").key.data == str(number)


def test_a_body_of_too_many_lines_fills_no_memory() -> None:
    body = b"1\n" * 1_000_000
    tracemalloc.start()
    found = list(itertools.islice(values_of(body, lines=False), 20_000))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(found) == MOST_RECORDS + 1 and peak < 40_000_000


def test_a_number_beyond_every_double_is_refused() -> None:
    (found,) = values_of(b"[1%s]" % (b"0" * 400), lines=False)
    assert isinstance(found, Malformed) and "infinity" in found.message


@pytest.mark.parametrize("frames", [1_000, 20_000])
def test_a_long_number_far_inside_is_refused(frames: int) -> None:
    """Independent of the recursion limit of this process, which some libraries raise and some tests
    import.
    """
    usual = sys.getrecursionlimit()
    sys.setrecursionlimit(frames)
    try:
        (found,) = values_of(b"[" * 1_000 + b"1234567890123456789" + b"]" * 1_000, lines=True)
        if not isinstance(found, CallerError):
            with pytest.raises(Unprocessable, match="less deep") as refused:
                plain_bytes(Data("JSON", found[0]), "value")
            found = refused.value
    finally:
        sys.setrecursionlimit(usual)
    assert "deep" in f"{found.message} {found.hint}"


def test_a_record_with_all_its_parts() -> None:
    asked = record_of(
        {
            "partition_id": 3,
            "headers": [{"name": "a", "value": "AP8="}, {"name": "b", "value": None}, {"name": "hub.producer",
            "value": "eA=="}],
            "key": {"type": "STRING", "data": "k"},
            "value": {"schema_id": 7, "data": {"x": 1}},
            "timestamp": "1970-01-01T01:00:00.5+01:00",
        },
        10,
    )  # fmt: skip
    assert (asked.partition, asked.timestamp_ms, asked.key) == (3, 500, Data("STRING", "k"))
    assert asked.value == Data(None, {"x": 1}, 7)
    assert asked.headers == (("a", b"\x00\xff"), ("b", b""), ("hub.producer", b"x"))
    assert record_of({"value": None}, 1).value.data is None


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ([], "not a JSON object"),
        ({"vale": {}}, 'field "vale" is not known'),
        ({"partition_id": -1}, "partition_id"),
        ({"partition_id": True}, "partition_id"),
        ({"value": 1}, "value: is not an object"),
        ({"value": {"type": "XML"}}, 'type "XML" is not known'),
        ({"value": {"type": "JSON", "schema_id": 1}}, "type JSON has no schema"),
        ({"value": {"schema": "{}"}}, "a schema is registered first"),
        ({"value": {"schema_id": "1"}}, 'value.schema_id: "1"'),
        ({"value": {"subject_name_strategy": "RECORD_NAME"}}, "TOPIC_NAME is served"),
        ({"headers": {}}, "headers: a list"),
        ({"headers": [{}]}, "headers[0]: has no name"),
        ({"headers": [{"name": "a\0b", "value": ""}]}, "headers[0]: the name has a null"),
        ({"headers": [{"name": "a", "value": "é"}]}, "headers[0].value"),
        ({"headers": [{"name": "hub.version", "value": ""}]}, "are the hub's"),
        ({"timestamp": "2024-02-29"}, "timestamp"),
        ({"timestamp": "2024-02-29T00:00:00"}, "timestamp"),
        ({"timestamp": -1}, "timestamp"),
        ({"timestamp": 253_402_300_800_000}, "timestamp"),
    ],
)
def test_a_record_that_says_it_wrong_is_told_where(record: Any, said: str) -> None:
    with pytest.raises(Unprocessable) as refused:
        record_of(record, 10)
    assert said in refused.value.message


def test_a_key_may_be_nested_and_a_name_with_dots_goes_before() -> None:
    event = {"customer": {"id": 7, "tags": []}, "a.b": "x", "a": {"b": "y"}}
    assert event_of(event, 5, "customer.id").key == Data("STRING", "7")
    assert event_of(event, 5, "a.b").key == Data("STRING", "x")
    for path in ("customer", "customer.no", "customer.id.x", "customer.tags.0"):
        with pytest.raises(Unprocessable, match=path.replace(".", r"\.")):
            event_of(event, 5, path)
    with pytest.raises(Unprocessable) as refused:
        event_of({"order_id": "o"}, 5, "order_idd")
    assert refused.value.hint == 'did you mean "order_id"?'


def test_limits_keys_and_plain_bytes() -> None:
    with pytest.raises(TooLarge):
        record_of({}, MOST_RECORD_BYTES + 1)
    with pytest.raises(TooLarge):
        event_of({}, MOST_RECORD_BYTES + 1, None)
    assert event_of({"id": 7}, 5, "id").key == Data("STRING", "7")
    assert event_of({"id": 7}, 5, None).key.data is None
    for event in ({"id": None}, {"id": True}, {"id": ""}, {}, []):
        with pytest.raises(Unprocessable):
            event_of(event, 5, "id")
    assert plain_bytes(Data("JSON", {"a": 1.5}), "value") == b'{"a":1.5}'
    assert plain_bytes(Data("BINARY", "AP8="), "value") == b"\x00\xff"
    assert plain_bytes(Data("STRING", None), "value") is None
    for wrong in (Data("STRING", 1), Data("BINARY", "*"), Data("BINARY", 1)):
        with pytest.raises(Unprocessable):
            plain_bytes(wrong, "value")
    assert headers_of(None) == () and timestamp_of(None) is None and timestamp_of(5) == 5


def test_whose_fault_decides_the_status() -> None:
    wanted = [
        (NotFound("x"), 404),
        (Malformed("x"), 400),
        (TooLarge("x"), 413),
        (Unprocessable("x"), 422),
        (Conflict("x"), 409),
        (Busy("x"), 429),
        (PeerError("x"), 503),
    ]
    assert [(error, status_of(error)) for error, _ in wanted] == wanted


# ---- repeated requests


def test_an_answer_is_remembered_for_its_window_and_no_longer() -> None:
    memory: AnswerMemory[str] = AnswerMemory(window_s=10.0)
    assert memory.find("t", "k", "one", 0.0) is None
    memory.keep("t", "k", "one", "answer", 0.0)
    assert memory.find("t", "k", "one", 10.0) == "answer"
    assert memory.find("other", "k", "two", 10.0) is None
    with pytest.raises(Conflict, match='"k": was used with another request'):
        memory.find("t", "k", "two", 10.0)
    assert memory.find("t", "k", "two", 10.1) is None


def test_the_oldest_are_forgotten_over_so_many_keys_and_so_many_bytes() -> None:
    memory: AnswerMemory[int] = AnswerMemory(most_keys=3, most_bytes=100)
    for number in range(5):
        memory.keep("t", f"k{number}", "p", number, 0.0)
        memory.weigh("t", f"k{number}", 1)
    assert [key for _, key in memory.entries] == ["k2", "k3", "k4"] and memory.size == 3
    memory.forget("t", "k2")
    memory.weigh("t", "k4", 0)
    memory.weigh("t", "k3", 60)
    memory.weigh("t", "k3", 70)
    assert memory.size == 70
    memory.weigh("t", "k4", 60)
    assert [key for _, key in memory.entries] == ["k4"] and memory.size == 60
    memory.weigh("t", "gone", 50)
    memory.forget("t", "k4")
    assert memory.size == 0


def test_a_request_under_way_is_not_forgotten_for_want_of_room() -> None:
    memory: AnswerMemory[int] = AnswerMemory(most_keys=2, most_bytes=100)
    memory.keep("t", "under way", "p", 0, 0.0)
    for number in range(3):
        memory.keep("t", f"k{number}", "p", number, 0.0)
        memory.weigh("t", f"k{number}", 90)
    memory.weigh("t", "k2", 200)
    assert memory.find("t", "under way", "p", 1.0) == 0
    assert len(memory.entries) == 1 and memory.size == 0


def test_what_nobody_heard_is_settled_by_a_second_look_and_kept_for_its_window() -> None:
    unheard = UnknownOutcomes(most_keys=2, window_s=10.0, settles_s=2.0)
    assert unheard.add("t", "k", 0.0) is None
    assert not unheard.settled("t", "k", 3.0)  # the first search, however late
    assert not unheard.settled("t", "k", 4.9) and unheard.settled("t", "k", 5.0)
    unheard.add("t", "k", 6.0)  # the outcome is unknown again
    assert not unheard.settled("t", "k", 6.0)
    assert unheard.holds("t", "k", 16.0) and not unheard.holds("t", "k", 16.1)
    assert [unheard.add("t", each, 20.0) for each in "abc"] == [None, None, "t"]
    assert not unheard.holds("t", "a", 20.0) and unheard.holds("t", "b", 20.0)


def test_what_another_server_may_write_is_settled_after_that_server_must_have_ended() -> None:
    unheard = UnknownOutcomes(settles_s=2.0)
    unheard.add("t", "k", 0.0, ends_at_s=20.0)
    assert not unheard.settled("t", "k", 0.0) and not unheard.settled("t", "k", 19.9)
    assert not unheard.settled("t", "k", 20.0)  # the first search that counts
    assert not unheard.settled("t", "k", 21.9) and unheard.settled("t", "k", 22.0)


def test_a_retry_says_how_long_ago_the_first_attempt_was() -> None:
    assert [checked_retry(text) for text in (None, "0", "2500")] == [None, 0, 2_500]
    for text in ("", "soon", "-1", "1.5", "9" * 13, "²"):
        with pytest.raises(CallerError, match="milliseconds"):
            checked_retry(text)


KEYS = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=20)


@given(KEYS, st.lists(st.integers(0, 5), max_size=8))
def test_marks_in_the_log_say_what_of_a_request_is_there(key: str, indexes: list[int]) -> None:
    print_ = fingerprint(b"body")
    said = [(("h", mark(key, print_, index, 6, 1_000)),) for index in indexes] + [(("h", b"no mark"),), ()]
    records = [Record("t", 0, offset, 5, None, None, headers) for offset, headers in enumerate(said)]
    found = found_in(records, "h")
    if not indexes:
        assert found == {}
        return
    assert set(found) == {key} and found[key].fingerprint == print_ and found[key].started_at_ms == 1_000
    assert {index: place.offset for index, place in found[key].places.items()} == {
        index: indexes.index(index) for index in indexes
    }


def test_of_two_requests_with_a_key_the_later_counts() -> None:
    marks = [mark("k", "old", 0, 2, 1_000), mark("k", "new", 0, 1, 9_000), mark("k", "old", 1, 2, 1_000)]
    records = [Record("t", 0, offset, 5, None, None, (("h", each),)) for offset, each in enumerate(marks)]
    found = found_in(records, "h")["k"]
    assert found.fingerprint == "new" and [place.offset for place in found.places.values()] == [1]


def test_keys_are_short_and_printable_and_fingerprints_know_their_parts() -> None:
    assert checked_key("a-1;x") == "a-1;x"
    for key in ("", "x" * 256, "é", "a\n"):
        with pytest.raises(CallerError):
            checked_key(key)
    assert fingerprint(b"a", b"b") != fingerprint(b"ab", b"")


def test_a_key_belongs_to_its_request_for_ten_minutes() -> None:
    found = FoundRequest("print", started_at_ms=1_000)
    searched = SearchedRequests({"k": found}, Positions(), 0.0, hides=False)
    assert of_same_request(searched, "k", "print", 601_000) is found
    assert of_same_request(searched, "k", "print", 601_001) is None
    with pytest.raises(Conflict, match="within 10 minutes"):
        of_same_request(searched, "k", "another", 601_000)


def test_an_invalid_line_is_an_error_in_its_place() -> None:
    first, second, third = records_of(
        b'{"a": 1}\nno json\n{"a": 2}\n', lines=True, form="event", key_field="a"
    )
    assert isinstance(second, CallerError)
    assert not isinstance(first, CallerError) and not isinstance(third, CallerError)
    assert (first.value.data, third.value.data) == ({"a": 1}, {"a": 2})
