"""Ourselves by Kafka's protocol: a gateway as `riacho serve` starts it, and Kafka's own client."""

import json
from pathlib import Path

import confluent_kafka

from benchmarks.harness import Connection, free_port, request
from benchmarks.peers.kafka import BATCH_BYTES, Kafka, Tuning
from benchmarks.peers.kafka_server import JavaServer
from benchmarks.peers.riacho import JSON, start_gateway


class RiachoKafka(Kafka):
    """The client and all its settings are those of the peer Kafka."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.name = "Riacho"
        self.http_port = 0

    def about(self) -> str:
        return (
            "one gateway, files and SQLite, its Kafka door;"
            f" librdkafka {confluent_kafka.libversion()[0]}, acks=all, idempotent, lz4"
        )

    def start(self, folder: Path) -> None:
        self.http_port, port = free_port(), free_port()
        process = start_gateway(folder / "data", self.http_port, RIACHO_KAFKA=f"127.0.0.1:{port}")
        self._server = JavaServer(process, folder / "log", port)
        try:
            self._connect()
            self.make("warm-up")
            self.producer(Tuning(0, BATCH_BYTES), "warm-up").close()
        except BaseException:
            self.stop()
            raise

    def make(self, topic: str, partitions: int = 1) -> None:
        connection = Connection(self.http_port)
        body = json.dumps({"name": topic, "partitions": partitions}).encode()
        post = request("POST", "/v1/topics", body, content_type=JSON)
        status, text = connection.call(post)
        connection.close()
        assert status == 201, text
