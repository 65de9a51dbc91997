"""Destroys the data keys of an encrypted topic, so that nobody can read its records any more.

The keys are removed in the transaction that removes the topic. It requires that there is no newer
key than those it removes, and a key is created only while its topic exists
(storage/crypto/keyring.py). So either the topic is there with its newest keys, or all are gone: a
crash leaves nothing half shredded. Only if there are more keys than fit, the oldest are removed
before, and a repeated call continues.

Gateways that still have a key in memory forget it in five minutes. Backups of the table keep
wrapped keys as long as they exist; docs/security.md says what follows.
"""

from typing import Final

from storage import keys
from storage.stores.metadata import Check, Delete, MetadataStore, Op, pages

TOGETHER_MAX: Final = 40
"""Maximum number of keys in the transaction that removes the topic; one is made a month."""


async def shredding(metadata: MetadataStore, topic_id: bytes) -> list[Op]:
    """Return what removes the topic's data keys, for the transaction that removes the topic."""
    prefix = keys.data_keys_of(topic_id)
    found = [each async for page in pages(metadata, prefix) for each in page]
    removals: list[Op] = [Delete(key, item.version) for key, item in found]
    while len(removals) > TOGETHER_MAX:
        await metadata.transact(removals[:TOGETHER_MAX])
        removals = removals[TOGETHER_MAX:]
    newest = max((int(key.removeprefix(prefix)) for key, _ in found), default=0)
    return [*removals, Check(keys.data_key(topic_id, newest + 1), None)]
