"""Keys, ACLs and quotas as this gateway knows them: at most three seconds old.

One small item changes with all of them (`service/security/versions.py`). A request that finds the
view too old reads that item, and everything again only if it has changed. So a revoked key is
refused by every gateway within `VIEW_AGE_MAX_S`, also in functions, where nothing runs between
requests. A gateway that cannot read the table lets nobody in.
"""

from dataclasses import dataclass, field
from typing import Final

from service.security.acl_items import all_acls
from service.security.acls import CompiledAcls
from service.security.api_keys.credentials import ApiKey, ApiKeys
from service.security.caller import Authenticated
from service.security.quotas.items import all_quotas
from service.security.quotas.limits import QuotaTable
from service.world.clock import World
from storage import keys
from storage.stores.metadata import MetadataStore
from storage.tasks import SingleFlight

VIEW_AGE_MAX_S: Final = 3.0

KEPT_MAX: Final = 10_000
"""Maximum number of credentials, good and bad ones each, that are remembered."""


_NO_QUOTAS: Final = QuotaTable({})


@dataclass(slots=True)
class Rules:
    """Everything as of one version."""

    version: str | None
    acls: CompiledAcls
    quotas: QuotaTable
    api_keys: dict[str, ApiKey | None] = field(default_factory=dict)
    """Keys that were looked up; None: there is none."""
    identities: dict[bytes, Authenticated] = field(default_factory=dict)
    """By the digest of a credential that was good."""

    def remember(self, digest: bytes, identity: Authenticated) -> None:
        if len(self.identities) >= KEPT_MAX:
            self.identities.clear()
        self.identities[digest] = identity


class SecurityView:
    def __init__(self, metadata: MetadataStore, world: World) -> None:
        self._metadata = metadata
        self._world = world
        self._keys = ApiKeys(metadata, world)
        self._rules: Rules | None = None
        self._checked_s = float("-inf")
        self._own_changes = 0
        self._reading = SingleFlight[int, Rules]()

    def fresh_rules(self) -> Rules | None:
        """Return what is known; None: it is too old, or there is nothing yet."""
        is_fresh = self._world.monotonic_s() - self._checked_s <= VIEW_AGE_MAX_S
        return self._rules if is_fresh else None

    async def rules(self) -> Rules:
        """Return what is known, after looking for changes if that was too long ago."""
        found = self.fresh_rules()
        return found or await self._reading.do(self._own_changes, self._read)

    async def _read(self) -> Rules:
        # Dated by the beginning of the call: a change may be written while it is read.
        began_s, own_changes = self._world.monotonic_s(), self._own_changes
        item = await self._metadata.get(keys.security_version())
        version = None if item is None else item.version
        rules = self._rules
        if rules is None or rules.version != version:
            acls, quotas = await all_acls(self._metadata), await all_quotas(self._metadata)
            rules = Rules(version, CompiledAcls(acls), quotas)
        if own_changes == self._own_changes:  # Else this may be older than a change of our own.
            self._rules, self._checked_s = rules, began_s
        return rules

    def quotas(self) -> QuotaTable:
        """Return the quotas as the latest request has found them."""
        return _NO_QUOTAS if self._rules is None else self._rules.quotas

    def expire(self) -> None:
        """Look for changes with the next request: this gateway has just made one."""
        self._checked_s = float("-inf")
        self._own_changes += 1

    async def api_key(self, rules: Rules, key_id: str) -> ApiKey | None:
        """Return the key, as it was when `rules` were read or later."""
        if key_id in rules.api_keys:
            return rules.api_keys[key_id]
        found = await self._keys.find(key_id)
        if len(rules.api_keys) >= KEPT_MAX:
            rules.api_keys.clear()
        rules.api_keys[key_id] = found
        return found
