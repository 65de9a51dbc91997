"""As whom a connector reads and writes: its principal, with the ACLs as they are now."""

from typing import Final

from service.connect.access.parts import ConnectParts
from service.connect.tasks.items import ConnectorItem
from service.process.references.references import SecretReferences
from service.security.caller import ANONYMOUS, ANYONE, Authenticated, Caller

CREDENTIAL: Final = "connector"
"""What audit lines say instead of the id of a key."""


async def caller_of(parts: ConnectParts, connector: ConnectorItem) -> Caller:
    """Return who the connector is; without security, one that may do everything.

    It comes from no host: only ACLs for all hosts hold for it.
    """
    security, settings = parts.security, parts.gateway.settings
    if security is None or _is_open(parts, connector):
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


def references_of(parts: ConnectParts, connector: ConnectorItem) -> SecretReferences:
    """Return what resolves references of a connector: its author may know less than we do."""
    is_super = connector.principal in parts.gateway.settings.super_user_names
    if parts.security is None or is_super or _is_open(parts, connector):
        return parts.references
    return parts.references.of_others()


def _is_open(parts: ConnectParts, connector: ConnectorItem) -> bool:
    # A process that is not told reads the same items as gateways that are.
    is_told = parts.gateway.settings.security == "on"
    return not is_told and connector.principal == ANONYMOUS.principal
