"""Records of a copy that did not have to come by its mirror."""

from __future__ import annotations

from dataclasses import replace

from mirror_statuses import FILE, LINK, MARK, T

from hub.replication.config.mirrors import MirrorsFile
from hub.replication.maps.imported_copy import ImportedCopy
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.ownership import failover
from hub.replication.ownership.failover import Control
from hub.replication.ownership.links import links
from hub.replication.ownership.operation_steps import Ownership
from hub.replication.verification.local_records import ALL, EVER, born_at_target


def test_what_stood_there_before_the_link_began_or_an_import_took_over_is_not_judged() -> None:
    assert born_at_target(FILE, LINK, Control(), MARK) == ((0, 10),)
    assert born_at_target(FILE, LINK, Control(), replace(MARK, target_start=0)) == ()
    copied = ImportedCopy("m", T, 0, "t", 50)
    assert born_at_target(FILE, LINK, Control(), MARK, copied) == ((0, 50),)
    assert born_at_target(FILE, LINK, Control(), MARK, replace(copied, target_topic_id="former")) == (
        (0, 10),
    )


def test_what_was_born_away_is_what_the_way_back_carried_and_all_that_comes_while_the_target_acts() -> None:
    begun = failover.begin(Control(), "switchover", id="1", mirror="m", home="nyc", new="lon", now_ms=0)
    done = replace(begun, state="done")
    back = OffsetMap.of([Run(120, 100, 20), Run(140, 130, 5)], source_next=150, target_next=140)
    acting = Control({"nyc": Ownership("nyc", "lon", 1)}, {"nyc": done})
    assert born_at_target(FILE, LINK, acting, MARK, None, back) == ((0, 10), (120, 145), (150, EVER))
    returned = Control({"nyc": Ownership("nyc", "nyc", 2)}, {"nyc": done})
    assert born_at_target(FILE, LINK, returned, MARK, None, back) == ((0, 10), (120, 145))
    # Not known, on its way, at home, or masked and therefore never carried: nothing is judged.
    assert born_at_target(FILE, LINK, returned, MARK) == ALL
    changing = Control({}, {"nyc": begun})
    assert born_at_target(FILE, LINK, changing, MARK, None, back)[-1] == (150, EVER)
    assert born_at_target(FILE, links(FILE)["m~back"], returned, MARK) == ALL
    mask = [{"topics": [T], "fields": ["email"], "with": "null"}]
    body = FILE.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    body["mirrors"]["m"]["mask"] = mask
    masked = MirrorsFile.model_validate(body)
    assert born_at_target(masked, links(masked)["m"], returned, MARK, None, back) == ALL
