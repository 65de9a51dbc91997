"""As whom a connector reads and writes: its principal, with the ACLs as they are now."""

from typing import Final

from service.connect.access.parts import ConnectParts
from service.connect.tasks.items import ConnectorItem
from service.security.caller import ANONYMOUS, ANYONE, Authenticated, Caller

CREDENTIAL: Final = "connector"
"""What audit lines say instead of the id of a key."""


async def caller_of(parts: ConnectParts, connector: ConnectorItem) -> Caller:
    """Return who the connector is; without security, one that may do everything.

    It comes from no host: only ACLs for all hosts hold for it.
    """
    security, settings = parts.security, parts.gateway.settings
    # A process that is not told reads the same items as gateways that are.
    is_open = settings.security != "on" and connector.principal == ANONYMOUS.principal
    if security is None or is_open:
        return ANYONE
    rules = await security.view.rules()
    identity = Authenticated(
        principal=connector.principal,
        credential_id=f"{CREDENTIAL}/{connector.name}",
        door=CREDENTIAL,
        is_super=connector.principal in settings.super_user_names,
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
