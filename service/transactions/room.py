"""How much one transaction may hold, so that it can be committed."""

from typing import Final

from storage.errors import TransactionTooLarge
from storage.stores.metadata import TRANSACT_OPS_MAX

ITEM_BYTES_MAX: Final = 128 * 1024
"""Maximum size of a transaction item. Every request rewrites it, so a larger one costs too much."""

OTHER_OPS: Final = 10
"""Reserved for the other items of a commit: the transaction, a group and its offsets."""

LANES_MAX: Final = TRANSACT_OPS_MAX - OTHER_OPS

_RUN_BYTES: Final = 64
_SLICE_BYTES: Final = 32
_SLICED_AT_BYTES: Final = 256 * 1024


def check_lanes(count: int) -> None:
    """Raise `TransactionTooLarge` if so many lanes cannot be committed at once."""
    if count > LANES_MAX:
        raise TransactionTooLarge(
            f"the transaction would write to {count} lanes, and can to {LANES_MAX}: it"
            f" is committed by one change of at most {TRANSACT_OPS_MAX} items of the metadata"
            f" table, {OTHER_OPS} of which are for the transaction, a group and its offsets; use"
            " fewer partitions, or topics with a larger lane.partitions"
        )


def check_item_bytes(size_bytes: int) -> None:
    """Raise `TransactionTooLarge` if the item of the transaction may not be so large."""
    if size_bytes > ITEM_BYTES_MAX:
        raise TransactionTooLarge(
            f"the transaction would take {size_bytes} bytes of metadata, and can take"
            f" {ITEM_BYTES_MAX}: commit more often, or send more records with each request"
        )


def run_bytes(lane_count: int, partition_count: int, size_bytes: int) -> int:
    """Return about how much an item grows by records of so many lanes and partitions."""
    slice_count = partition_count + size_bytes // _SLICED_AT_BYTES
    return _RUN_BYTES * lane_count + _SLICE_BYTES * slice_count
