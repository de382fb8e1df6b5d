"""Starting Kafka: what chance must not decide."""

from pathlib import Path

from hub.embedded.kafka_node import bring_home, new_cluster_id, render_properties


def test_a_folder_of_any_name_is_the_one_that_java_reads() -> None:
    """Read like java.util.Properties: Latin-1, escapes. A home under "jürgen" was another folder, which
    nobody may make."""
    folder = Path("/home/jürgen/日\\本/😀")
    text = render_properties(9092, folder)
    (said,) = (line.partition("=")[2] for line in text.splitlines() if line.startswith("log.dirs="))
    assert said.isascii()
    assert said.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16") == str(
        folder
    )


def test_a_log_that_was_in_the_misread_folder_comes_home(tmp_path: Path) -> None:
    data, misread = tmp_path / "jürgen" / "data", tmp_path / "jÃ¼rgen" / "data"
    misread.mkdir(parents=True)
    (misread / "meta.properties").write_text("cluster.id=a")
    data.parent.mkdir()
    bring_home(data)
    assert (data / "meta.properties").read_text() == "cluster.id=a" and not misread.exists()
    misread.mkdir()
    (misread / "meta.properties").write_text("cluster.id=b")
    bring_home(data)  # what is there stays
    assert (data / "meta.properties").read_text() == "cluster.id=a"


def test_a_cluster_id_never_reads_as_an_option() -> None:
    ids = [new_cluster_id() for _ in range(2_000)]
    assert not [each for each in ids if each.startswith("-")]
    assert {len(each) for each in ids} == {22}
