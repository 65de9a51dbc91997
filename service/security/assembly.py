"""The parts of security, chosen and connected for a gateway."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.security.acls import Decision, Operation, ResourceType
from service.security.audit.lines import Actor, Audit, to_log
from service.security.authenticating import Authenticator
from service.security.caller import Caller
from service.security.door import Door, Records
from service.security.quotas.buckets import Quotas
from service.security.quotas.logins import LoginLimits
from service.security.tls.subjects import principal_mapper
from service.security.view import SecurityView
from service.settings import Settings
from service.world.clock import World
from storage.errors import RiachoError
from storage.stores.metadata import MetadataStore

if TYPE_CHECKING:
    from service.security.oidc.claims import VerifiedToken


@dataclass(frozen=True, slots=True)
class Security:
    """What a gateway with security has."""

    door: Door
    view: SecurityView
    audit: Audit
    authenticator: Authenticator
    logins: LoginLimits
    quotas: Quotas
    records: Records


class AuditedRecords:
    """Records what callers were refused, and what they changed, in the audit log."""

    def __init__(self, audit: Audit) -> None:
        self._audit = audit

    def unauthenticated(self, error: RiachoError, *, peer: str, request_id: str, path: str) -> None:
        actor = Actor(peer=peer, request_id=request_id)
        self._audit.refused(error.code, actor, resource=path, why=str(error))

    def refused(
        self,
        caller: Caller,
        operation: Operation,
        kind: ResourceType,
        name: str,
        decision: Decision,
    ) -> None:
        self._audit.refused(
            f"{kind}_AUTHORIZATION_FAILED",
            _actor(caller),
            operation=operation,
            resource_type=kind,
            resource=name,
            why=decision.why,
        )

    def changed(self, caller: Caller, operation: Operation, kind: ResourceType, name: str) -> None:
        self._audit.changed(_actor(caller), operation=operation, resource_type=kind, resource=name)


def _actor(caller: Caller) -> Actor:
    own = caller.identity
    return Actor(
        principal=own.principal,
        credential_id=own.credential_id,
        door=own.door,
        peer=caller.host,
        request_id=caller.request_id,
    )


def secured(settings: Settings, metadata: MetadataStore, world: World) -> Security:
    """Return the security that `settings` describe."""
    view = SecurityView(metadata, world)
    logins = LoginLimits(
        world.monotonic_s,
        failed_max=settings.logins_failed_max,
        failed_per_peer_max=settings.logins_failed_per_peer_max,
    )
    quotas = Quotas(
        metadata,
        world,
        view.quotas,
        tails_max=settings.tails_per_principal_max,
        waits_max=settings.waits_per_principal_max,
    )
    authenticator = Authenticator(
        view,
        world.now_ms,
        logins,
        super_users=settings.super_user_names,
        verify_token=_token_verifier(settings, world),
        principal_of_subject=principal_mapper(settings.ssl_principal_mapping_rules),
    )
    audit = Audit(world, [] if settings.audit == "off" else [to_log])
    records = AuditedRecords(audit)
    door = Door(authenticator, view, records, quotas, world.monotonic_s)
    return Security(door, view, audit, authenticator, logins, quotas, records)


def _token_verifier(
    settings: Settings, world: World
) -> "Callable[[str], Awaitable[VerifiedToken]] | None":
    """Return what verifies tokens of the identity provider, if the settings name one."""
    if not settings.jwt_issuer:
        return None
    # Imported here: a gateway without a provider does without.
    from service.security.oidc.verifier import verifier_of

    verifier = verifier_of(settings, world)
    return None if verifier is None else verifier.verify
