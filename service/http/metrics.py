"""Metrics of this gateway, in Prometheus' text format."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client import Counter, Histogram

    from service.log.gateway import Gateway

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)


class Metrics:
    """The counters of one process. With several workers each has its own."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Histogram

        self._registry = CollectorRegistry()
        self._requests = Counter(
            "riacho_requests",
            "Requests answered",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._seconds = Histogram(
            "riacho_request_seconds",
            "Time to answer, by route",
            ["route"],
            buckets=_BUCKETS,
            registry=self._registry,
        )
        self._kafka: dict[str, Histogram] = {}
        self._kafka_seconds: Histogram | None = None
        self._answers: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._produced_records = self._counter("riacho_produced_records", "Records committed")
        self._produced_bytes = self._counter("riacho_produced_bytes", "Bytes of these records")
        self._fetched_records = self._counter("riacho_fetched_records", "Records returned")
        self._fetched_bytes = self._counter("riacho_fetched_bytes", "Bytes of these responses")

    def _counter(self, name: str, about: str) -> "Counter":
        from prometheus_client import Counter

        return Counter(name, about, registry=self._registry)

    def watch(self, gateway: "Gateway") -> None:
        """Export what the parts of `gateway` count themselves."""
        from prometheus_client import Gauge

        values = {
            "riacho_tasks": ("Tasks of the event loop", lambda: len(asyncio.all_tasks())),
            "riacho_held_bytes": ("Bytes not yet durable", lambda: gateway.admission.held_bytes),
            "riacho_outgoing_bytes": (
                "Bytes of records on their way to readers",
                lambda: gateway.outgoing.held_bytes,
            ),
            "riacho_refused_requests": (
                "Requests refused for overload",
                lambda: gateway.admission.refused_count,
            ),
            "riacho_flushes": ("Segments written", lambda: gateway.batcher.flush_count),
            "riacho_table_batches": (
                "Segments written to the table",
                lambda: gateway.batcher.batch_count,
            ),
            "riacho_flushed_bytes": ("Bytes of segments", lambda: gateway.batcher.flushed_bytes),
            "riacho_store_reads": ("Range reads of objects", lambda: gateway.reader.store_reads),
            "riacho_slice_cache_bytes": (
                "Bytes in the slice cache",
                lambda: gateway.reader.cache.size_bytes,
            ),
            "riacho_slice_cache_hits": ("Slices found", lambda: gateway.reader.cache.hits),
            "riacho_slice_cache_misses": ("Slices read", lambda: gateway.reader.cache.misses),
        }
        for name, (about, value) in values.items():
            Gauge(name, about, registry=self._registry).set_function(value)

    def answered(self, method: str, route: str, status: int, took_s: float) -> None:
        found = self._answers.get((method, route, status))
        if found is None:
            # Cached: looking up labels takes longer than counting.
            found = self._requests.labels(method, route, str(status)), self._seconds.labels(route)
            self._answers[method, route, status] = found
        found[0].inc()
        found[1].observe(took_s)

    def kafka(self, api: str, took_s: float) -> None:
        """Count a request of a Kafka client, by Kafka's name for its kind."""
        found = self._kafka.get(api)
        if found is None:
            found = self._kafka[api] = self._of_kafka().labels(api)
        found.observe(took_s)

    def _of_kafka(self) -> "Histogram":
        from prometheus_client import Histogram

        if self._kafka_seconds is None:
            self._kafka_seconds = Histogram(
                "riacho_kafka_request_seconds",
                "Time to answer requests of Kafka clients, by kind",
                ["api"],
                buckets=_BUCKETS,
                registry=self._registry,
            )
        return self._kafka_seconds

    def watch_kafka(self, connections: Callable[[], int]) -> None:
        """Export how many Kafka clients are connected."""
        from prometheus_client import Gauge

        gauge = Gauge(
            "riacho_kafka_connections", "Connections of Kafka clients", registry=self._registry
        )
        gauge.set_function(connections)

    def produced(self, records: int, size_bytes: int) -> None:
        self._produced_records.inc(records)
        self._produced_bytes.inc(size_bytes)

    def fetched(self, records: int, size_bytes: int) -> None:
        self._fetched_records.inc(records)
        self._fetched_bytes.inc(size_bytes)

    def render(self) -> bytes:
        from prometheus_client import generate_latest

        return generate_latest(self._registry)


class NoMetrics(Metrics):
    """Counts nothing: a process that is frozen between answers cannot be scraped."""

    def __init__(self) -> None:
        pass

    def watch(self, gateway: "Gateway") -> None:
        pass

    def answered(self, method: str, route: str, status: int, took_s: float) -> None:
        pass

    def kafka(self, api: str, took_s: float) -> None:
        pass

    def watch_kafka(self, connections: Callable[[], int]) -> None:
        pass

    def produced(self, records: int, size_bytes: int) -> None:
        pass

    def fetched(self, records: int, size_bytes: int) -> None:
        pass

    def render(self) -> bytes:
        return b""
