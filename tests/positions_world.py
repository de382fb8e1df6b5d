"""Maps of a mirror without clusters, and the logs of a Spark checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hub.record import TopicPartition
from hub.replication.maps.offset_map import OffsetMap, Run
from hub.replication.positions.translation import PartitionMap, TranslatedPosition, translate

PLACE = TopicPartition("nyc.orders", 0)


@dataclass
class Maps:
    """The maps of a mirror, without clusters."""

    known: Mapping[TopicPartition, PartitionMap] = field(default_factory=dict)

    def translate(self, place: TopicPartition, offset: int, *, back: bool = False) -> TranslatedPosition:
        return translate(place, offset, self.known.get(place), back=back)


def table(*runs: Run, source_next: int = -1) -> OffsetMap:
    return OffsetMap.of(runs, source_next=source_next)


# Source 10..14, a marker at 15, and 16..19; markers of the mirror at target 5.
ORDERS = PartitionMap(table(Run(10, 0, 5), Run(16, 6, 4), source_next=21))
MAPS = Maps({PLACE: ORDERS})


def log(offset: int, *more: str) -> str:
    return "\n".join(["v1", '{"batchWatermarkMs":0}', f'{{"nyc.orders":{{"0":{offset}}}}}', *more])
