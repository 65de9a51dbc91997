"""Open the stores that the settings name."""

from typing import Final

from service.settings import Settings
from service.world.clock import World
from storage.crypto.keyring import Keyring
from storage.crypto.wrapping import KeyWrappers
from storage.errors import InvalidConfig
from storage.stores.metadata import MetadataStore
from storage.stores.objects import ObjectStore
from storage.stores.opening import open_metadata, open_objects
from storage.zones.zones import Zones

DEFAULT_ZONE: Final = "a"

SQLITE_BATCH_BYTES_MAX: Final = 32 * 1024
"""Maximum flush stored in a SQLite table instead of a file beside it (docs/decisions/0029)."""

INITIAL_REBALANCE_DELAY_MS: Final = 3_000
"""Kafka's default."""


def open_zones(settings: Settings) -> Zones:
    """Return the zones that `settings` names; one directory if it names none."""
    stores: dict[str, ObjectStore] = {}
    for item in (settings.zones or DEFAULT_ZONE).split(","):
        name, separator, url = item.strip().partition("=")
        if not name:
            raise InvalidConfig(f"RIACHO_ZONES: {item!r} has no name; write name=url or name")
        if name in stores:
            raise InvalidConfig(f"RIACHO_ZONES: there are two zones {name!r}")
        directory = (settings.data / "zones" / name).absolute()
        stores[name] = open_objects(url if separator else directory.as_uri())
    return Zones(stores)


def open_table(settings: Settings, world: World) -> MetadataStore:
    """Return the metadata store that `settings` names; SQLite if it names none."""
    default = f"sqlite:///{(settings.data / 'metadata.db').absolute()}"
    return open_metadata(settings.metadata or default, world.new_version)


def open_keyring(settings: Settings, metadata: MetadataStore, world: World) -> Keyring:
    """Return the data keys of encrypted topics; nothing is read before the first use of one."""
    return Keyring(
        metadata,
        KeyWrappers(settings.kek_files, world.random_bytes),
        now_ms=world.now_ms,
        monotonic_s=world.monotonic_s,
        random_bytes=world.random_bytes,
        patience=world.patience,
    )


def with_small_batches(settings: Settings) -> Settings:
    """Return `settings` with a limit for batches in the table, if they have none.

    With one directory beside a SQLite file, the file takes small flushes: both are on one disk,
    and one disk flush covers records and head. Elsewhere the operator decides.
    """
    if settings.table_batch_bytes_max is not None:
        return settings
    limit = SQLITE_BATCH_BYTES_MAX if _is_embedded(settings) else 0
    return settings.model_copy(update={"table_batch_bytes_max": limit})


def with_rebalance_delay(settings: Settings) -> Settings:
    """Return `settings` with a delay of the first round of classic groups, if they have none.

    On a laptop it would only be felt. Where many members are started together, it spares them most
    of the rounds in which they would come one after the other.
    """
    if settings.group_initial_rebalance_delay_ms is not None:
        return settings
    delay_ms = 0 if _is_embedded(settings) else INITIAL_REBALANCE_DELAY_MS
    return settings.model_copy(update={"group_initial_rebalance_delay_ms": delay_ms})


def is_in_memory(settings: Settings) -> bool:
    """Whether no other process can see the stores, or one of them."""
    return "memory:" in settings.zones + settings.metadata


def _is_embedded(settings: Settings) -> bool:
    zones = (settings.zones or DEFAULT_ZONE).split(",")
    directory = not zones[0].partition("=")[2].startswith(("s3:", "memory:"))
    table = (settings.metadata or "sqlite:").startswith("sqlite:")
    return table and directory and len(zones) == 1
