"""Encrypted topics through the front door: stored sealed, read open, and shredded."""

import asyncio
import base64
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from crc32c import crc32c

from service.jobs import commands
from service.jobs.runners.choice import How
from storage import keys
from storage.crypto.envelope import DataKey
from storage.errors import InvalidConfig
from storage.formats import slices
from storage.formats.partitions import PartitionNumber
from storage.head import head as heads
from storage.head.head import Head
from storage.stores.metadata import Put
from tests.service.log.sealed import ENCRYPTED, Sealed, running, settings_of, stored_bytes

pytestmark = pytest.mark.anyio

MARKER = "marmalade-on-the-stairs"
THREADS = How(spark=False, concurrency=2)


def large(count: int, start: int = 0) -> list[str]:
    return [f"{MARKER} {number} " + "x" * 1000 for number in range(start, start + count)]


async def compacted(root: Path, topic: str = "t") -> None:
    outcome = await commands.compact(settings_of(root), THREADS, [topic], force=True, dry_run=False)
    assert outcome.ok, outcome.lines
    assert outcome.document["compacted"], outcome.lines


async def swept(root: Path) -> None:
    outcome = await commands.sweep(
        settings_of(root), THREADS, min_age_ms=0, limit=None, unsafe=True, dry_run=False
    )
    assert outcome.ok, outcome.lines


async def checked(root: Path) -> None:
    """Check all that is stored; no key is needed for that."""
    settings = settings_of(root).model_copy(update={"kek_files": None})
    outcome = await commands.fsck(settings, THREADS, [], sizes_only=False)
    assert outcome.ok, outcome.lines


async def located(sealed: Sealed, topic: str = "t") -> list[dict[str, Any]]:
    reply = await sealed.http.get(f"/v1/topics/{topic}/partitions/0/segments")
    assert reply.status_code == 200, reply.text
    found: list[dict[str, Any]] = reply.json()["segments"]
    return found


async def key_of(sealed: Sealed, number: int = 1, topic: str = "t") -> DataKey:
    reply = await sealed.http.post(f"/v1/topics/{topic}/data-keys/{number}")
    assert reply.status_code == 200, reply.text
    assert reply.headers["cache-control"] == "no-store"
    found = reply.json()
    assert found["algorithm"] == "AES-256-GCM"
    secret = base64.b64decode(found["key_base64"])
    return DataKey(bytes.fromhex(found["topic_id"]), number, secret)


async def test_small_and_large_flushes_are_stored_sealed_and_read_open(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create(config={"compression.type": "none"})
        await sealed.produce(MARKER)
        await sealed.produce(*large(200))
        assert await sealed.values() == [MARKER, *large(200)]

    async with running(tmp_path) as again:
        assert await again.values() == [MARKER, *large(200)]

    assert MARKER.encode() not in stored_bytes(tmp_path)


async def test_without_encryption_the_marker_is_found(tmp_path: Path) -> None:
    """The search would find it: the other tests show something."""
    async with running(tmp_path, table_batch_bytes_max=0) as plain:
        config = {"encryption": "none", "encryption.kek": "", "compression.type": "none"}
        await plain.create(config=config)
        await plain.produce(MARKER)

    assert MARKER.encode() in stored_bytes(tmp_path)


@pytest.mark.parametrize("policy", ["delete", "compact"])
async def test_rolled_and_compacted_records_stay_sealed(tmp_path: Path, policy: str) -> None:
    config = {"compression.type": "none", "cleanup.policy": policy}
    async with running(tmp_path) as sealed:
        await sealed.create(config=config)
        written = []
        # More than a head holds, so that batches of the table are rolled into objects.
        for number in range(130):
            written.append(f"{MARKER} {number}")
            await sealed.produce(written[-1])
        await sealed.produce(*large(50))
        written += large(50)
    await checked(tmp_path)
    await compacted(tmp_path)
    await swept(tmp_path)
    await checked(tmp_path)

    async with running(tmp_path) as again:
        assert {each["format"] for each in await located(again)} == {"parquet-sealed"}
        assert await again.values() == written
        await again.produce(*large(3, 1000))
        written += large(3, 1000)
    # A second compaction reads sealed segments, and by key only some columns.
    await compacted(tmp_path)
    async with running(tmp_path) as last:
        assert await last.values() == written
        late = await last.http.get("/v1/topics/t/partitions/0/offsets", params={"at": "1"})
        assert late.json()["offset"] == 0

    assert MARKER.encode() not in stored_bytes(tmp_path)


async def test_other_topics_are_stored_as_ever(tmp_path: Path) -> None:
    """A flush has slices of both; only those of the encrypted topic are sealed."""
    async with running(tmp_path, table_batch_bytes_max=0) as sealed:
        await sealed.create("secret", config={"compression.type": "none"})
        plain = {"encryption": "none", "encryption.kek": "", "compression.type": "none"}
        await sealed.create("open", config=plain)
        await asyncio.gather(
            sealed.produce(*large(100), topic="secret"), sealed.produce("plum", topic="open")
        )
        assert await sealed.values("secret") == large(100)
        assert await sealed.values("open") == ["plum"]
        assert [each["format"] for each in await located(sealed, "open")] == ["arrow"]
        reply = await sealed.http.post("/v1/topics/open/data-keys/1")
        assert reply.status_code == 400
        assert "is not encrypted" in reply.json()["detail"]

    stored = stored_bytes(tmp_path)
    assert b"plum" in stored
    assert MARKER.encode() not in stored


async def test_a_reader_opens_ranges_with_the_key_that_the_gateway_unwraps(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create()
        await sealed.produce(MARKER)
        [small] = await located(sealed)
        assert small["format"] == "arrow-sealed"
        assert small["data_key"] == 1
        data = base64.b64decode(small["url"].partition(",")[2])
        assert crc32c(data) == small["crc32c"]

        key = await key_of(sealed)
        opened = slices.decode_unchecked(key.open(data, PartitionNumber(0)))
        assert opened.column(2).to_pylist() == [MARKER.encode()]


async def test_readers_of_arrow_and_of_tails_get_open_records(tmp_path: Path) -> None:
    import pyarrow as pa

    async with running(tmp_path) as sealed:
        await sealed.create()
        await sealed.produce(MARKER)
        arrow = {"accept": "application/vnd.apache.arrow.stream"}
        reply = await sealed.http.get("/v1/topics/t/partitions/0/records", headers=arrow)
        with pa.ipc.open_stream(reply.content) as stream:
            assert stream.read_all().column("value").to_pylist() == [MARKER.encode()]
        partitions = [{"topic": "t", "partition": 0, "offset": 0}]
        several = await sealed.http.post("/v1/fetch", json={"partitions": partitions})
        assert MARKER in several.text


async def test_transactions_and_atomic_calls_are_sealed(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create(partitions=2)
        begun = await sealed.http.post("/v1/transactions", json={"transactional_id": "x"})
        name = begun.json()["transaction_id"]
        headers = {"riacho-transaction": name}
        body = {"records": [{"value": f"{MARKER} staged"}]}
        path = "/v1/topics/t/partitions/0/records"
        staged = await sealed.http.post(path, json=body, headers=headers)
        assert staged.status_code == 200, staged.text
        ended = await sealed.http.post(f"/v1/transactions/{name}/commit")
        assert ended.status_code == 200, ended.text
        records = [{"topic": "t", "value": f"{MARKER} atomic", "partition": 1}]
        atomic = await sealed.http.post("/v1/atomic", json={"records": records})
        assert atomic.status_code == 200, atomic.text
        assert await sealed.values(partition=0) == [f"{MARKER} staged"]
        assert await sealed.values(partition=1) == [f"{MARKER} atomic"]

    async with running(tmp_path) as again:
        assert await again.values(partition=0) == [f"{MARKER} staged"]
    assert MARKER.encode() not in stored_bytes(tmp_path)


async def test_a_shredded_topic_is_gone_and_others_go_on(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed, running(tmp_path) as other:
        await sealed.create("gone")
        await sealed.create("kept")
        for topic in ("gone", "kept"):
            await sealed.produce(*large(40), topic=topic)
            await sealed.produce("small", topic=topic)
        assert await other.values("gone") == [*large(40), "small"]
        topic_id = (await sealed.gateway.topics.read("gone")).topic_id

        reply = await sealed.http.delete("/v1/topics/gone", params={"shred": "true"})
        assert reply.status_code == 204, reply.text

        prefix = keys.data_keys_of(topic_id)
        assert await sealed.gateway.metadata.list(prefix) == []
        other.gateway.topics.forget("gone")
        for each in (sealed, other):
            refused = await each.fetch(topic="gone")
            assert refused.status_code == 404
            assert (await each.http.post("/v1/topics/gone/data-keys/1")).status_code == 404
            assert await each.values("kept") == [*large(40), "small"]
    await checked(tmp_path)
    await swept(tmp_path)
    async with running(tmp_path) as again:
        await again.create("gone")
        await again.produce("new", topic="gone")
        assert await again.values("gone") == ["new"]


async def test_what_a_backup_brings_back_without_its_keys_is_refused(tmp_path: Path) -> None:
    """The topic and its head again, the keys not: as after a restore of some items."""
    async with running(tmp_path) as sealed:
        await sealed.create()
        await sealed.produce(MARKER)
        topic = await sealed.gateway.topics.read("t")
        metadata = sealed.gateway.metadata
        names = [keys.topic("t"), keys.head(topic.topic_id, 0)]
        kept = await metadata.get_many(names)
        [batch] = heads.decode(kept[names[1]].value).runs
        assert (await sealed.http.delete("/v1/topics/t?shred=true")).status_code == 204
        await metadata.transact([Put(name, kept[name].value, None) for name in names])
        sealed.gateway.reader.cache.__init__(0, len)  # type: ignore[misc]

        refused = await sealed.fetch()
        assert refused.status_code == 400
        assert refused.json()["code"] == "ENCRYPTION_KEY_UNAVAILABLE"
        assert batch.data_key == 1


@pytest.mark.parametrize(
    ("config", "detail"),
    [
        ({"encryption": "topic"}, "encryption=topic needs encryption.kek"),
        ({"encryption.kek": "file:one.key"}, "has no effect without encryption=topic"),
        ({**ENCRYPTED, "encryption.kek": "file:none.key"}, "file:none.key: No such file"),
        ({**ENCRYPTED, "encryption.kek": "file:../data/x"}, "is not below the directory"),
        ({**ENCRYPTED, "encryption.kek": "file:/etc/passwd"}, "is not below the directory"),
        ({**ENCRYPTED, "encryption.kek": "file:link.key"}, "is not below the directory"),
        ({**ENCRYPTED, "encryption.kek": "file:short.key"}, "does not hold 32 bytes"),
        ({**ENCRYPTED, "encryption.kek": "file:."}, "is not below the directory"),
    ],
)
async def test_a_key_that_cannot_be_used_is_refused_when_the_topic_is_created(
    tmp_path: Path, config: dict[str, str], detail: str
) -> None:
    async with running(tmp_path) as sealed:
        (tmp_path / "keys" / "short.key").write_bytes(b"too short")
        (tmp_path / "keys" / "link.key").symlink_to("/etc/passwd")
        reply = await sealed.http.post("/v1/topics", json={"name": "t", "config": config})

        assert reply.status_code == 400
        assert reply.json()["code"] == "INVALID_CONFIG"
        assert detail in reply.json()["detail"]


async def test_without_a_directory_of_keys_no_file_is_read(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create()
        await sealed.produce(MARKER)
    settings = settings_of(tmp_path).model_copy(update={"kek_files": None})
    outcome = await commands.compact(settings, THREADS, ["t"], force=True, dry_run=False)

    assert not outcome.ok
    assert "RIACHO_KEK_FILES" in str(outcome.document["failed"])


async def test_encryption_is_fixed_at_creation(tmp_path: Path) -> None:
    async with running(tmp_path) as sealed:
        await sealed.create()
        for change in ({"encryption": "none"}, {"encryption.kek": None}, {"encryption": None}):
            reply = await sealed.http.patch("/v1/topics/t", json={"config": change})
            assert reply.status_code == 400
            assert "cannot be changed after creation" in reply.json()["detail"]
        shred = await sealed.http.post("/v1/topics", json={"name": "plain"})
        assert shred.status_code == 201
        refused = await sealed.http.delete("/v1/topics/plain?shred=true")
        assert refused.status_code == 400
        assert (await sealed.fetch(topic="plain")).status_code == 200


def test_the_library_is_not_imported_for_topics_that_are_not_encrypted(tmp_path: Path) -> None:
    program = f"""
import asyncio, json, sys
from pathlib import Path
from tests.service.log.sealed import running

async def main():
    async with running(Path({str(tmp_path)!r})) as plain:
        await plain.create(config={{"encryption": "none", "encryption.kek": ""}})
        await plain.produce("v")
        assert await plain.values() == ["v"]

asyncio.run(main())
print(json.dumps([name for name in sys.modules if name.split(".")[0] == "cryptography"]))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == []


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.ciphers.aead", None)

    with pytest.raises(InvalidConfig, match=r"pip install 'riacho\[security\]'"):
        DataKey(bytes(16), 1, bytes(32)).seal(b"x", PartitionNumber(0), bytes(12))


async def test_what_was_changed_or_moved_is_refused_as_corrupt(tmp_path: Path) -> None:
    async with running(tmp_path, table_batch_bytes_max=0) as sealed:
        await sealed.create(partitions=2, config={"lane.partitions": 1})
        await sealed.produce("a", partition=0)
        await sealed.produce("b", partition=1)
        topic = await sealed.gateway.topics.read("t")
        metadata = sealed.gateway.metadata
        first, second = [keys.head(topic.topic_id, lane) for lane in (0, 1)]
        found = await metadata.get_many([first, second])
        # The head is that of partition 0, but its run is that of partition 1, checksum and all.
        head, other = heads.decode(found[first].value), heads.decode(found[second].value)
        forged = heads.encode(msgspec.structs.replace(head, runs=other.runs))
        await metadata.transact([Put(first, forged, found[first].version)])
    async with running(tmp_path) as again:
        moved = await again.fetch(partition=0)
        assert moved.status_code == 500
        assert moved.json()["code"] == "CORRUPT_MESSAGE"
        assert await again.values(partition=1) == ["b"]

    [path] = [each for each in (tmp_path / "data").rglob("*.seg") if each.stem in _ids(other)]
    damaged = bytearray(path.read_bytes())
    damaged[other.runs[0].position + 20] ^= 1
    path.write_bytes(damaged)
    async with running(tmp_path) as last:
        assert (await last.fetch(partition=1)).json()["code"] == "CORRUPT_MESSAGE"


def _ids(head: Head) -> set[str]:
    return {run.object_id.hex() for run in head.runs}
