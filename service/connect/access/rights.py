"""As whom a connector reads and writes: its principal, with the ACLs as they are now."""

from typing import Final

from service.connect.access.parts import Parts
from service.connect.tasks.items import ConnectorItem
from service.security.caller import ANYONE, Authenticated, Caller

CREDENTIAL: Final = "connector"
"""What audit lines say instead of the id of a key."""


async def caller_of(parts: Parts, connector: ConnectorItem) -> Caller:
    """Return who the connector is; without security, one that may do everything.

    It comes from no host: only ACLs for all hosts hold for it.
    """
    security = parts.security
    if security is None:
        return ANYONE
    rules = await security.view.rules()
    identity = Authenticated(
        principal=connector.principal,
        credential_id=f"{CREDENTIAL}/{connector.name}",
        door=CREDENTIAL,
        is_super=connector.principal in parts.gateway.settings.super_user_names,
        name_prefix=connector.name_prefix,
    )
    return Caller(
        identity,
        rules.acls,
        "",
        refused=security.records.refused,
        changed=security.records.changed,
        client_id=f"connector-{connector.name}",
        quotas=security.quotas,
    )
