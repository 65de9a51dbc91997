"""Decoders of credentials, and of what is stored about keys, ACLs and quotas."""

import asyncio
import base64
from typing import Any

from hypothesis import strategies as st
from starlette.requests import Request

from service.http.requests import QUERY, Query
from service.process.references.properties import parse_properties
from service.routes.access import security as routes
from service.security import acl_items
from service.security.api_keys import credentials, tokens, users
from service.security.authenticating import Authenticator
from service.security.oidc.key_set import read_key_set
from service.security.oidc.parsing import parse_token
from service.security.quotas import buckets
from service.security.quotas import items as quotas
from service.security.quotas.logins import LoginLimits
from service.security.tls.subjects import parse_rules
from service.security.view import SecurityView
from service.serverless import identity
from service.world.clock import real_world
from storage import keys
from storage.errors import Overloaded, Rejected, Unavailable
from storage.stores.memory import MemoryMetadata
from storage.stores.metadata import Put
from tests.fuzz.decoder import STRUCTS, Decoder, framed
from tests.fuzz.values import json_of

TEXT = "the text, its parts, and all of it in the message"

KEY_ID, SECRET = tokens.key_id(bytes(11)), tokens.secret(bytes(range(32)))
KEY = tokens.key_text(KEY_ID, SECRET)
STORED = credentials.ApiKey(KEY_ID, "User:ana", tokens.digest_of(SECRET), 0)


def _basic(pair: str) -> str:
    return f"Basic {base64.b64encode(pair.encode()).decode()}"


HEADERS = [
    f"Bearer {KEY}",
    *map(_basic, [f"{KEY_ID}:{SECRET}", f"{KEY_ID}:{KEY}", f":{KEY}"]),
]
BAD_HEADERS = [
    "Bearer eyJhbGciOiJub25lIn0.e30.",
    *map(_basic, ["ana:secret", "no colon", f"ana:{KEY}"]),
]

TOKEN = ".".join(
    base64.urlsafe_b64encode(part).decode().rstrip("=")
    for part in (b'{"alg":"ES256","kid":"1"}', b'{"sub":"ana","exp":1}', b"signature")
)

FILTERS = [
    b"principal=User:ana&operation=READ&resource_type=TOPIC&pattern_type=MATCH",
    b"permission=ALLOW&host=*&resource_name=t",
    b"resource_type=ANY",
]

CONTEXTS = [b'{"authorizer":{"iam":{"userArn":"arn:aws:iam::1:role/r"}}}', b"{}", b"null"]


def _identified(header: bytes) -> Any:
    """Return who a header is from, for a deployment with one key."""
    world = real_world()
    table = MemoryMetadata(world.new_version)
    view = SecurityView(table, world)
    logins = LoginLimits(world.monotonic_s, failed_max=100, failed_per_peer_max=100)
    authenticator = Authenticator(view, world.now_ms, logins)
    scope = {"type": "http", "headers": [(b"authorization", header)]}

    async def identify() -> Any:
        await table.transact([Put(keys.api_key(STORED.key_id), credentials.encode(STORED), None)])
        return await authenticator.identify(scope, await view.rules())

    return asyncio.run(identify())


def _filtered(data: bytes) -> Any:
    known = [
        *("resource_type", "resource_name", "pattern_type", "principal"),
        *("host", "operation", "permission"),
    ]
    scope = {"type": "http", "headers": [], "query_string": data, QUERY: known}
    return routes._filter(Query(Request(scope)))


ITEMS = [
    framed(
        "service.security.api_keys.credentials.decode",
        b"RKY1",
        credentials.ApiKey,
        credentials.decode,
        credentials.encode,
    ),
    framed(
        "service.security.api_keys.users.decode",
        b"RUS1",
        users.ScramUser,
        users.decode,
        users.encode,
    ),
    framed(
        "service.security.acl_items._decode",
        b"RAC1",
        acl_items._Entries,
        lambda value: acl_items._decode("acl/TOPIC/LITERAL/t", value),
        acl_items._encode,
    ),
    framed(
        "service.security.quotas.items._decode",
        b"RQT1",
        quotas.StoredQuota,
        quotas._decode,
        lambda found: quotas._encode(*found),
    ),
    framed(
        "service.security.quotas.buckets.decode_bucket",
        b"RQU1",
        buckets.Bucket,
        buckets.decode_bucket,
    ),
]

SENT = [
    Decoder(
        covers=("service.security.api_keys.users.parse_user_name",),
        decode=lambda data: users.parse_user_name(data.decode("latin-1")),
        valid=st.sampled_from([b"ana", b"ana@example.org"]),
        errors=(Rejected,),
        factor=64,
        why=TEXT,
    ),
    Decoder(
        covers=(
            "service.security.oidc.parsing.parse_token",
            "service.security.oidc.parsing._object",
        ),
        decode=lambda data: parse_token(data.decode("latin-1"), frozenset({"ES256"})),
        valid=st.just(TOKEN.encode()),
        errors=(Rejected,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.security.oidc.key_set.read_key_set",),
        decode=read_key_set,
        valid=st.sampled_from([b'{"keys": []}', b'{"keys": [{"kty": "EC"}, 7]}']),
        errors=(Unavailable,),
        factor=250,
        why=STRUCTS,
    ),
    Decoder(
        covers=("service.security.api_keys.tokens.parse_api_key",),
        decode=lambda data: tokens.parse_api_key(data.decode("latin-1")),
        valid=st.just(KEY.encode()),
        errors=(),
        factor=64,
        why=TEXT,
    ),
    Decoder(
        covers=(
            "service.security.authenticating.Authenticator._of_pair",
            "service.security.authenticating._named_by",
        ),
        decode=_identified,
        valid=st.sampled_from(HEADERS).map(str.encode),
        hard=st.sampled_from(BAD_HEADERS).map(str.encode),
        errors=(Rejected, Overloaded),
        factor=64,
        why=TEXT,
    ),
    Decoder(
        covers=("service.process.references.properties.parse_properties",),
        decode=lambda data: parse_properties(data.decode("latin-1")),
        valid=st.sampled_from([b"name=value\n# no\nother: a\\\n b", b"a\\u00e9=\\n"]),
        errors=(),
        factor=250,
        why="two bytes may be an entry of a dictionary",
    ),
    Decoder(
        covers=("service.security.tls.subjects.parse_rules",),
        decode=lambda data: parse_rules(data.decode(errors="replace")),
        valid=st.sampled_from([b"DEFAULT", b"RULE:^CN=(.*?),.*$/$1/L, DEFAULT"]),
        errors=(Rejected,),
        factor=250,
        why="a pattern of RE2, which limits itself; eight bytes may be a rule",
    ),
    Decoder(
        covers=("service.security.quotas.items.parse_entity",),
        decode=lambda data: quotas.parse_entity(data.decode("latin-1"), None),
        valid=st.sampled_from([b"User:ana", b"ana", b"<default>"]),
        errors=(Rejected,),
        factor=64,
        why=TEXT,
    ),
    Decoder(
        covers=("service.routes.access.security._converted",),
        decode=_filtered,
        valid=st.sampled_from(FILTERS),
        errors=(Rejected,),
        factor=64,
        why=TEXT,
    ),
    Decoder(
        covers=("service.serverless.identity._decoded",),
        decode=identity._decoded,
        valid=st.sampled_from(CONTEXTS) | json_of(dict[str, str]),
        errors=(),
        factor=250,
        why=STRUCTS,
    ),
]

ALL = [*ITEMS, *SENT]
