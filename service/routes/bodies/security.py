"""Bodies of the calls about keys and ACLs: what is sent, and what is answered."""

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from service.security.acls import Acl
from service.security.api_keys.credentials import ApiKey
from service.security.api_keys.scopes import KeyScope

MOMENT_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999."""

OVERLAP_MS_DEFAULT = 3_600_000
OVERLAP_MS_MAX = 30 * 86_400_000

PrincipalName = Annotated[str, Meta(pattern="^User:[^*\\x00-\\x1f].{0,499}$")]
NamePrefix = Annotated[
    str,
    Meta(
        pattern="^[a-zA-Z0-9._-]{0,100}$",
        description="put in front of every name that the caller gives, and taken away in answers",
    ),
]


class NewKeyBody(msgspec.Struct, forbid_unknown_fields=True):
    principal: (
        Annotated[PrincipalName, Meta(description="default: that of the caller")] | UnsetType
    ) = UNSET
    expires_ms: Annotated[int, Meta(ge=0, le=MOMENT_MAX, description="null: never")] | None = None
    scope: Annotated[KeyScope, Meta(description="null: all that the principal may do")] | None = (
        None
    )
    name_prefix: NamePrefix = ""
    super: Annotated[
        bool, Meta(description="it may do everything in its scope, whatever ACLs say")
    ] = False
    description: Annotated[str, Meta(max_length=300)] = ""
    scram: Annotated[
        bool, Meta(description="id and secret are also a name and password for SCRAM")
    ] = False


class KeyInfo(msgspec.Struct, kw_only=True):
    id: str
    principal: str
    created_ms: int
    expires_ms: int | None
    scope: KeyScope | None
    name_prefix: str
    super: bool
    parent: Annotated[str | None, Meta(description="the key that made this one, and ends it")]
    created_by: str
    old_secret_until_ms: Annotated[
        int | None, Meta(description="until when the secret before the last rotation is accepted")
    ]
    description: str


class KeyWithSecret(KeyInfo, kw_only=True):
    key: Annotated[str, Meta(description="shown only now: Authorization: Bearer …")]


class KeyList(msgspec.Struct):
    keys: list[KeyInfo]


class RotateBody(msgspec.Struct, forbid_unknown_fields=True):
    overlap_ms: Annotated[
        int, Meta(ge=0, le=OVERLAP_MS_MAX, description="how long the old secret is accepted")
    ] = OVERLAP_MS_DEFAULT


class NewAcls(msgspec.Struct, forbid_unknown_fields=True):
    acls: Annotated[list[Acl], Meta(min_length=1, max_length=1000)]


class AclList(msgspec.Struct):
    acls: list[Acl]


class Checked(msgspec.Struct):
    allowed: bool
    why: str
    acl: Acl | None


class WhoAmI(msgspec.Struct):
    principal: str
    credential: Annotated[str, Meta(description="the id of the key, or the kind of credential")]
    door: Annotated[str, Meta(description="key, jwt, iam or certificate; none: security is off")]
    super: bool
    scope: KeyScope | None
    name_prefix: str
    expires_ms: int | None


def key_info(key: ApiKey) -> KeyInfo:
    return KeyInfo(**_fields(key))


def key_with_secret(key: ApiKey, text: str) -> KeyWithSecret:
    return KeyWithSecret(key=text, **_fields(key))


def _fields(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "principal": key.principal,
        "created_ms": key.created_ms,
        "expires_ms": key.expires_ms,
        "scope": key.scope,
        "name_prefix": key.name_prefix,
        "super": key.is_super,
        "parent": key.parent_id,
        "created_by": key.created_by,
        "old_secret_until_ms": key.old_until_ms,
        "description": key.description,
    }
