"""What both producers share: their settings, and everything that does not wait."""

from typing import TYPE_CHECKING, Final, cast

from riacho.consumer.group_calls import OffsetsGiven, offsets_given
from riacho.consumer.group_offsets import GroupOffsets
from riacho.delivery.batches import Draft
from riacho.delivery.numbering import IN_FLIGHT_MAX
from riacho.delivery.sender import Delivery
from riacho.errors import BufferExhausted, new_error
from riacho.http.background import Synchronous
from riacho.http.gateway import gateway_url
from riacho.http.identity import Basic, ClientCert, Credentials
from riacho.http.retries import Backoff
from riacho.http.wire import COMPRESSIONS, Compression
from riacho.producer.pipeline import Pipeline
from riacho.producer.serializing import Serializing
from riacho.transactions.transactions import Transactions
from storage.errors import InvalidAcks

if TYPE_CHECKING:
    import httpx

    from riacho.consumer.shared import Consuming
    from riacho.schemas.serializers import Serializer

MIB: Final = 1024 * 1024


class Producing:
    def __init__(
        self,
        url: str | None = None,
        *,
        acks: str | int = "all",
        enable_idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout_ms: int = 60_000,
        linger_ms: float = 5,
        batch_size: int = 1 * MIB,
        compression_type: Compression | None = None,
        retries: int = 2**31 - 1,
        retry_backoff_ms: float = 100,
        retry_backoff_max_ms: float = 1000,
        delivery_timeout_ms: float = 120_000,
        request_timeout_ms: float = 30_000,
        max_in_flight: int = 5,
        max_in_flight_per_partition: int | None = None,
        buffer_memory: int = 32 * MIB,
        max_block_ms: float = 60_000,
        metadata_max_age_ms: float = 300_000,
        key_serializer: "Serializer | None" = None,
        value_serializer: "Serializer | None" = None,
        token: str | None = None,
        basic: Basic | None = None,
        ca_file: str | None = None,
        client_cert: ClientCert | None = None,
        transport: "httpx.AsyncBaseTransport | None" = None,
    ) -> None:
        """Prepare to send to the gateway at `url`; nothing is sent yet.

        `url`: where the gateway is; None means `RIACHO_URL`, else http://127.0.0.1:8080.
        `acks`: "all" (every in-sync zone has the record), 1 (the leader has it) or 0 (do
        not wait, the record may be lost and its offset stays unknown).
        `enable_idempotence`: write each record once, even if it is sent repeatedly. On, unless
        `acks` is 0, where nothing is sent twice.
        `transactional_id`: a name that survives a restart, for transactions. The newest
        producer with this name fences the others.
        `transaction_timeout_ms`: the gateway aborts a transaction after this time. Applies only
        to transactions begun at the gateway, because they are large.
        `linger_ms`: how long the first record of a batch waits for others; extended by the
        same time for every batch of its partition that is in flight.
        `batch_size`: maximum bytes of records in one request.
        `compression_type`: "lz4" (the default), "zstd", "gzip" or "none".
        `retries`, `retry_backoff_ms`, `retry_backoff_max_ms`: how many retries, how far apart.
        `delivery_timeout_ms`: the time from `send` to the final answer, retries included.
        `request_timeout_ms`: how long to wait for one reply.
        `max_in_flight`: maximum number of concurrent requests.
        `max_in_flight_per_partition`: the same for one partition. 5 with idempotence, as many
        as the gateway remembers; without it 1, or a retry could overtake its successor.
        `buffer_memory`: maximum bytes held; beyond that `send` waits up to `max_block_ms`.
        `metadata_max_age_ms`: maximum time until new partitions of a topic are noticed.
        `key_serializer`, `value_serializer`: write keys and values by schemas of the registry
        (`riacho.AvroSerializer` and others); `send` raises `InvalidRecord` for what does not fit.
        `token`, `basic`, `ca_file`, `client_cert`: who this client is, and whom it trusts: a key or
        token; (user, password); a file of authorities; a certificate, as one file, or (certificate,
        key), or (certificate, key, password). None: as the URL says (user:password@), or the
        environment: `RIACHO_TOKEN`, `RIACHO_USER`, `RIACHO_CA_FILE`, `RIACHO_CLIENT_CERT`, ….
        `transport`: an httpx transport, for tests and unusual networks.
        """
        if compression_type not in (None, *COMPRESSIONS):
            raise ValueError(f"compression_type is one of {', '.join(COMPRESSIONS)}")
        if not 0 < batch_size <= buffer_memory:
            raise ValueError("batch_size must be positive, and fit into buffer_memory")
        if max_in_flight < 1:
            raise ValueError("max_in_flight is 1 or more, or nothing would ever be sent")
        if min(retries, linger_ms, retry_backoff_ms, max_block_ms) < 0:
            raise ValueError("retries, linger_ms, retry_backoff_ms and max_block_ms are 0 or more")
        if min(delivery_timeout_ms, request_timeout_ms, transaction_timeout_ms) <= 0:
            raise ValueError(
                "delivery_timeout_ms, request_timeout_ms and transaction_timeout_ms are more than 0"
            )
        is_idempotent = _is_idempotent(enable_idempotence, _acks(acks), transactional_id)
        delivery = Delivery(
            acks=_acks(acks),
            linger_s=linger_ms / 1000,
            compression=compression_type or "lz4",
            retries=retries,
            backoff=Backoff(first_ms=retry_backoff_ms, most_ms=retry_backoff_max_ms),
            delivery_timeout_s=delivery_timeout_ms / 1000,
            request_timeout_s=request_timeout_ms / 1000,
            max_in_flight=max_in_flight,
            max_in_flight_per_partition=_per_partition(max_in_flight_per_partition, is_idempotent),
            is_idempotent=is_idempotent,
        )
        self._max_block_s = max_block_ms / 1000
        has_schemas = key_serializer is not None or value_serializer is not None
        self._serializing = Serializing(key_serializer, value_serializer) if has_schemas else None
        self._pipeline = Pipeline(
            gateway_url(url),
            delivery,
            batch_bytes_max=batch_size,
            buffer_bytes_max=buffer_memory,
            metadata_age_max_s=metadata_max_age_ms / 1000,
            block_s=self._max_block_s,
            transactional_id=transactional_id,
            transaction_timeout_ms=transaction_timeout_ms,
            transport=transport,
            credentials=Credentials(
                token=token, basic=basic, ca_file=ca_file, client_cert=client_cert
            ),
        )
        super().__init__()

    @property
    def is_in_transaction(self) -> bool:
        """Whether a transaction has begun, and was neither committed nor aborted."""
        transactions = self._pipeline.transactions
        return transactions is not None and transactions.is_open

    @property
    def _transactions(self) -> Transactions:
        if self._pipeline.transactions is None:
            raise RuntimeError("this producer has no transactions; give transactional_id")
        return self._pipeline.transactions

    def _send_offsets(
        self, consumer: "Consuming | None", group: str | None, offsets: OffsetsGiven | None
    ) -> None:
        transactions = self._transactions
        if consumer is not None and group is None and offsets is None:
            if isinstance(consumer, Synchronous) != isinstance(self, Synchronous):
                raise TypeError("a Producer takes a Consumer, an AsyncProducer an AsyncConsumer")
            transactions.send_offsets(consumer.transaction_offsets())
        elif consumer is None and group is not None and offsets is not None:
            transactions.send_offsets(GroupOffsets(group, offsets_given(offsets)))
        else:
            raise ValueError("give a consumer, or a group and its offsets")

    def _exhausted(self, draft: Draft) -> Exception:
        return new_error(
            BufferExhausted,
            f"no room for {draft.size_bytes} bytes within {self._max_block_s:g} s: the gateway"
            " takes records more slowly than they come; raise buffer_memory or send less",
        )


def _acks(acks: str | int) -> str:
    text = {"-1": "all"}.get(str(acks), str(acks))
    if text not in ("all", "1", "0"):
        raise cast(InvalidAcks, new_error(InvalidAcks, f'acks is "all", 1 or 0, not {acks!r}'))
    return text


def _is_idempotent(wanted: bool | None, acks: str, transactional_id: str | None) -> bool:
    if acks == "0" and (wanted or transactional_id is not None):
        raise ValueError("idempotence and transactions need an answer: acks is not 0 with them")
    if wanted is False and transactional_id is not None:
        raise ValueError("transactions are idempotent: enable_idempotence is not False with them")
    return acks != "0" if wanted is None else wanted


def _per_partition(wanted: int | None, is_idempotent: bool) -> int:
    most = IN_FLIGHT_MAX if is_idempotent else 1
    if wanted is not None and not 1 <= wanted <= most:
        because = "as many as the gateway remembers" if is_idempotent else "or order would be lost"
        raise ValueError(f"max_in_flight_per_partition is 1 to {most}, {because}")
    return wanted or most
