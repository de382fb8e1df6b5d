"""Starting Kafka: what chance must not decide."""

from hub.embedded.kafka_node import new_cluster_id


def test_a_cluster_id_never_reads_as_an_option() -> None:
    ids = [new_cluster_id() for _ in range(2_000)]
    assert not [each for each in ids if each.startswith("-")]
    assert {len(each) for each in ids} == {22}
