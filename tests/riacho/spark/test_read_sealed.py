"""Direct reads of an encrypted topic: tasks open what they read, with keys of the gateway."""

import json
from pathlib import Path

import pytest

from riacho import Admin
from riacho.spark.read.reading import RiachoReader, SpanPartition
from riacho.spark.read.spans import SpanReader, Wishes
from storage.errors import UnknownTopicOrPartition
from tests.commands import riacho
from tests.gateway import start_gateway
from tests.riacho.spark.reads import ALL, columns, table
from tests.riacho.spark.test_read_compacted import RECORDS, expected, formats, job, produce, rows

ENCRYPTED = {"encryption": "topic", "encryption.kek": "file:one.key"}


def test_slices_and_row_groups_are_opened_by_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keks = tmp_path / "keys"
    keks.mkdir()
    (keks / "one.key").write_bytes(bytes(range(32)))
    monkeypatch.setenv("RIACHO_KEK_FILES", str(keks))
    env = {"RIACHO_KEK_FILES": str(keks)}
    with start_gateway(tmp_path, env=env) as gateway:
        given = {"url": gateway.url, "subscribe": "t"}
        with Admin(gateway.url) as admin:
            admin.create_topic("t", config=ENCRYPTED)
        for start in range(0, RECORDS, 50):
            produce(gateway, start, start + 50)
        assert rows(RiachoReader(given, ALL)) == expected(range(RECORDS))

        job(tmp_path, "compact", "--force", "t")
        produce(gateway, RECORDS, RECORDS + 20)
        reader = RiachoReader(given, ALL)
        assert formats(reader) == ["arrow-sealed", "parquet-sealed"]
        assert rows(reader) == expected(range(RECORDS + 20))
        few = table(RiachoReader(given, columns("offset", "key")))
        assert few.column("offset").to_pylist() == [*range(RECORDS + 20)]

        # It was the task that opened them, not the gateway.
        partitions = [each for each in reader.partitions() if isinstance(each, SpanPartition)]
        with SpanReader(_wishes(reader, gateway.url)) as spans:
            for each in partitions:
                assert [*spans.batches(each.span, 0)]
            assert (spans.relocations, spans.fetches) == (0, 0)

        assert b"and its keys" in riacho("topic", "delete", "t", "--shred", url=gateway.url).stderr
        described = riacho("topic", "list", "-o", "json", url=gateway.url).stdout
        assert "t" not in [each["name"] for each in _topics(described)]
        with pytest.raises(UnknownTopicOrPartition), Admin(gateway.url) as admin:
            admin.delete_topic("t", shred=True)


def _wishes(reader: RiachoReader, url: str) -> Wishes:
    return Wishes(url=url, schema=reader._schema, bounds=reader._bounds, fail_on_data_loss=True)


def _topics(text: bytes) -> list[dict[str, str]]:
    found = json.loads(text)
    return found["topics"] if isinstance(found, dict) else found
