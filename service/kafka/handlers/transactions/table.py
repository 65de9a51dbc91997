"""The calls about transactions, by their keys; InitProducerId and Produce are with the data."""

from service.kafka.call import Handler
from service.kafka.handlers.transactions.calls import TransactionCalls
from service.kafka.handlers.transactions.offsets import TransactionOffsets
from service.kafka.parts import Parts
from service.kafka.protocol.apis import Api


def handlers(parts: Parts) -> dict[int, Handler]:
    calls = TransactionCalls(parts)
    return {
        Api.ADD_PARTITIONS_TO_TXN: calls.add_partitions,
        Api.ADD_OFFSETS_TO_TXN: calls.add_offsets,
        Api.END_TXN: calls.end,
        Api.TXN_OFFSET_COMMIT: TransactionOffsets(parts).commit,
    }
