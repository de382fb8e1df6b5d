"""Chains of the access log: what was removed, changed or moved is found, with its offset."""

from __future__ import annotations

from collections.abc import Sequence

import jsonschema
import orjson
import pytest

from hub.access_log.actions import MEANINGS, LoggedAction, Outcome
from hub.access_log.chain import Chain, LogPlace, LogSigner, hash_of
from hub.access_log.entry import SCHEMA, Entry, Who, decode
from hub.access_log.verifying import LogCheck
from hub.errors import HubFault

SIGNER, OTHER = LogSigner(b"k" * 32), LogSigner(b"o" * 32)


def entry(number: int) -> Entry:
    who = Who("ana", "session", "10.0.0.7")
    return Entry(
        LoggedAction.topic_change, Outcome.ok, who, 1_700_000_000_000 + number, "topic", f"t{number}"
    )


def written(count: int = 6, *, id: str = "c1", signer: LogSigner = SIGNER, end: bool = True) -> list[bytes]:
    """A chain: its opening, ``count`` entries with a checkpoint in the middle, and its end."""
    chain = Chain(id, signer, "server")
    values = chain.seal([entry(n) for n in range(count // 2)], 1)
    values.append(chain.sign(LoggedAction.log_checkpoint, 2))
    values += chain.seal([entry(n) for n in range(count // 2, count)], 3)
    return [*values, chain.sign(LoggedAction.log_close, 4)] if end else values


def checked(values: Sequence[bytes], begin: int = 0, trusted: Sequence[str] = (SIGNER.public,)) -> LogCheck:
    check = LogCheck(begin, trusted)
    for offset, value in enumerate(values, begin):
        check.apply(offset, value)
    return check


def found(check: LogCheck) -> list[tuple[int, str]]:
    return [(each.offset, each.kind) for each in check.problems]


def test_a_log_as_it_was_written_is_whole() -> None:
    values = written()
    check = checked(values)
    assert check.is_whole is True and check.records == 9
    (chain,) = check.chains.values()
    assert (chain.closed, chain.unsigned, chain.cut) == (True, 0, False)
    assert check.head == LogPlace(8, hash_of(values[-1]))


def test_records_without_a_signature_behind_them_are_counted() -> None:
    check = checked(written(end=False))
    assert check.is_whole is True
    assert [each.unsigned for each in check.chains.values()] == [3]


@pytest.mark.parametrize("at", range(8))
def test_a_changed_record_is_named(at: int) -> None:
    values = written()
    changed = orjson.loads(values[at])
    changed["data"]["who"] = "bob"
    check = checked([*values[:at], orjson.dumps(changed), *values[at + 1 :]])
    assert check.is_whole is False
    assert (at, "changed") in found(check)


def test_a_changed_end_has_a_wrong_signature() -> None:
    values = written()
    changed = orjson.loads(values[-1])
    changed["data"]["detail"]["after"] = "5:abc"
    assert found(checked([*values[:-1], orjson.dumps(changed)])) == [(8, "signature")]


@pytest.mark.parametrize("at", range(1, 8))
def test_a_removed_record_is_missed_by_the_next(at: int) -> None:
    values = written()
    check = checked([*values[:at], *values[at + 1 :]])
    assert found(check)[0] == (at, "removed")
    assert f"({at} to {at})" in check.problems[0].message


def test_a_removed_beginning_is_missed_unless_retention_deleted_it() -> None:
    values = written()
    assert found(checked(values[2:])) == [(0, "removed")]
    check = checked(values[2:], begin=2)
    assert check.is_whole is True
    (chain,) = check.chains.values()
    assert (chain.cut, chain.vouched) == (True, True)


def test_a_change_before_the_first_checkpoint_that_is_left_is_found() -> None:
    """Retention has deleted the opening; the links up to the checkpoint still hold the rest."""
    values = written()
    changed = orjson.loads(values[2])
    changed["data"]["name"] = "other"
    assert found(checked([orjson.dumps(changed), *values[3:]], begin=2)) == [(2, "changed")]


def test_records_in_another_order_are_named() -> None:
    values = written()
    values[1], values[2] = values[2], values[1]
    assert {kind for _, kind in found(checked(values))} == {"removed", "moved"}
    assert {offset for offset, _ in found(checked(values))} <= {1, 2, 3}


def test_a_repeated_record_is_named() -> None:
    values = written()
    assert (3, "moved") in found(checked([*values[:3], values[2], *values[3:]]))


def test_rehashed_records_do_not_fit_the_signature() -> None:
    """Someone without the key removes a record and computes all later links again."""
    values = written()
    mine, later = Chain("c1", OTHER, "server"), []
    for value in (values[0], *values[2:]):
        body = orjson.loads(value)
        body["sequence"], body["previous"] = mine.sequence, mine.previous
        forged = orjson.dumps(body)
        mine.sequence, mine.previous = mine.sequence + 1, hash_of(forged)
        later.append(forged)
    assert {kind for _, kind in found(checked(later))} == {"signature"}


def test_a_chain_of_an_unknown_key_proves_nothing() -> None:
    check = checked(written(signer=OTHER))
    assert check.is_whole is None and OTHER.public in check.problems[0].message
    assert checked(written(signer=OTHER), trusted=[OTHER.public]).is_whole is True


def test_a_chain_that_is_removed_as_a_whole_is_missed_by_the_next() -> None:
    first = written(2, end=False)
    second = Chain("c2", SIGNER, "cli", LogPlace(len(first) - 1, hash_of(first[-1])))
    later = second.seal([entry(9)], 5)
    assert checked([*first, *later]).is_whole is True
    third = Chain("c0", SIGNER, "server").seal([entry(1)], 1)
    check = checked([*third, *later])
    assert (len(first) - 1, "changed") in found(check) or (len(first) - 1, "removed") in found(check)


def test_the_last_records_of_a_killed_process_are_held_by_the_next_chain() -> None:
    first = written(2, end=False)
    later = Chain("c2", SIGNER, "cli", LogPlace(len(first) - 1, hash_of(first[-1]))).seal([entry(9)], 5)
    changed = orjson.loads(first[-1])
    changed["data"]["who"] = "bob"
    check = checked([*first[:-1], orjson.dumps(changed), *later])
    assert found(check) == [(len(first) - 1, "changed")]


def test_chains_of_several_processes_interleave() -> None:
    one, two = written(id="a"), written(id="b", signer=SIGNER)
    mixed = [value for pair in zip(one, two, strict=True) for value in pair]
    assert checked(mixed).is_whole is True


def test_a_noted_head_is_required() -> None:
    values = written()
    check = checked(values)
    check.require(LogPlace(3, hash_of(values[3])))
    assert check.is_whole is True
    check.require(LogPlace(3, "0" * 64))
    assert found(check) == [(3, "changed")]


def test_foreign_records_are_named_and_not_decoded() -> None:
    check = checked([*written(), b"hello", b'{"data": 1}'])
    assert found(check) == [(9, "unreadable"), (10, "unreadable")]
    with pytest.raises(HubFault, match="offset 3"):
        decode(b"x", 3)


def test_records_follow_the_schema() -> None:
    for value in written():
        jsonschema.validate(orjson.loads(value), dict(SCHEMA))
    stored = decode(written()[1], 1)
    assert stored.entry.who.name == "ana" and stored.sequence == 1
    assert stored.row()["action"] == "topic.change"


def test_each_action_has_a_meaning() -> None:
    assert set(MEANINGS) == set(LoggedAction)
