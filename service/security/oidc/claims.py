"""What a token claims, once its signature holds. Pure.

    iss    exactly RIACHO_JWT_ISSUER
    aud    has one of RIACHO_JWT_AUDIENCE
    exp    required; nbf and iat count if they are there. Clocks may differ by a named skew
    scope  has RIACHO_JWT_REQUIRED_SCOPE, if that is set (`scp` where a provider calls it so)

One claim names the principal. A rule may shorten or prefix it, with the rules of
`ssl.principal.mapping.rules`, so that names of two providers, or of a provider and of keys, differ.
Details of a refusal name the claim and the setting, and repeat neither.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from service.security.tls.subjects import Rule, parse_rules
from service.settings import Settings
from storage.errors import InvalidConfig, Unauthenticated

NAME_CHARS_MAX: Final = 256
TIME_S_MAX: Final = 1 << 40
"""The year 36812; later ones are no times."""

RECORDED: Final = ("iss", "sub", "azp", "client_id", "jti")
"""Claims that are kept, for the audit."""

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimRules:
    """What a token must say."""

    issuer: str
    audiences: frozenset[str]
    principal_claim: str = "sub"
    mapping: tuple[Rule, ...] = (Rule(),)
    required_scope: str = ""
    skew_s: float = 30.0

    @classmethod
    def of(cls, settings: Settings) -> "ClaimRules":
        """Return what the settings ask for. Raises `InvalidConfig`."""
        audiences = frozenset(a.strip() for a in settings.jwt_audience.split(",") if a.strip())
        if not audiences:
            raise InvalidConfig(
                "RIACHO_JWT_AUDIENCE must name whom tokens are for: without it, those of every"
                " other service of the same provider would be accepted"
            )
        return cls(
            issuer=settings.jwt_issuer,
            audiences=audiences,
            principal_claim=settings.jwt_principal_claim,
            mapping=_mapping(settings),
            required_scope=settings.jwt_required_scope,
            skew_s=settings.jwt_clock_skew_s,
        )


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """Who a token is of, and for how long."""

    principal: str
    expires_ms: int
    """With the skew that clocks may have."""
    claims: Mapping[str, str]


def check_issuer(claims: Mapping[str, Any], rules: ClaimRules) -> None:
    """Raise `Unauthenticated` if the token is of another issuer."""
    if claims.get("iss") != rules.issuer:
        raise Unauthenticated("the token is of another issuer (iss) than RIACHO_JWT_ISSUER")


def verified(claims: Mapping[str, Any], rules: ClaimRules, now_ms: int) -> VerifiedToken:
    """Return what `claims` say if they hold now, or raise `Unauthenticated`."""
    check_issuer(claims, rules)
    _check_audience(claims.get("aud"), rules)
    expires_s = _check_times(claims, rules.skew_s, now_ms / 1000)
    _check_scope(claims, rules.required_scope)
    recorded = {name: claims[name] for name in RECORDED if isinstance(claims.get(name), str)}
    return VerifiedToken(
        principal_of(claims, rules.principal_claim, rules.mapping),
        math.floor((expires_s + rules.skew_s) * 1000),
        {name: text[:NAME_CHARS_MAX] for name, text in recorded.items()},
    )


def principal_of(claims: Mapping[str, Any], claim: str, mapping: tuple[Rule, ...]) -> str:
    """Return the principal that `claim` names, or raise `Unauthenticated`."""
    found = claims.get(claim)
    if not isinstance(found, str) or len(found) > NAME_CHARS_MAX or not _NAME.fullmatch(found):
        raise Unauthenticated(
            f"the token has no claim {claim!r} that names a principal"
            " (RIACHO_JWT_PRINCIPAL_CLAIM chooses it)"
        )
    if claim == "email" and claims.get("email_verified", True) not in (True, "true"):
        raise Unauthenticated("the provider has not verified the e-mail address of the token")
    for rule in mapping:
        name = rule.name(found)
        if name:
            return f"User:{name}"
    raise Unauthenticated(
        f"no rule of RIACHO_JWT_PRINCIPAL_MAPPING_RULES matches the claim {claim!r} of the token"
    )


def named_by(settings: Settings) -> Callable[[Mapping[str, Any]], str]:
    """Return what names the principal of claims that somebody else has verified already.

    It returns nothing for claims without a principal, or without the scope that is required.
    """
    mapping = _mapping(settings)

    def name(claims: Mapping[str, Any]) -> str:
        try:
            _check_scope(claims, settings.jwt_required_scope)
            return principal_of(claims, settings.jwt_principal_claim, mapping)
        except Unauthenticated:
            return ""

    return name


def _mapping(settings: Settings) -> tuple[Rule, ...]:
    try:
        return parse_rules(settings.jwt_principal_mapping_rules)
    except InvalidConfig as error:
        raise InvalidConfig(f"RIACHO_JWT_PRINCIPAL_MAPPING_RULES: {error}") from None


def _check_audience(found: object, rules: ClaimRules) -> None:
    given = found if isinstance(found, list) else [found]
    if not any(isinstance(each, str) and each in rules.audiences for each in given):
        raise Unauthenticated("the token is for another audience (aud) than RIACHO_JWT_AUDIENCE")


def _check_times(claims: Mapping[str, Any], skew_s: float, now_s: float) -> float:
    """Return when the token expires."""
    expires_s = _time(claims, "exp")
    if expires_s is None:
        raise Unauthenticated("the token never expires (exp), and such tokens are refused")
    if now_s >= expires_s + skew_s:
        raise Unauthenticated("the token has expired (exp); get a new one")
    for name in ("nbf", "iat"):
        begins_s = _time(claims, name)
        if begins_s is not None and now_s < begins_s - skew_s:
            raise Unauthenticated(f"the token is not valid yet ({name}); compare the clocks")
    return expires_s


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    found = claims.get(name)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float) or abs(found) > TIME_S_MAX:
        raise Unauthenticated(f"{name} of the token is no time in seconds")
    return float(found)


def _check_scope(claims: Mapping[str, Any], required: str) -> None:
    if not required:
        return
    found = claims.get("scope", claims.get("scp"))
    given = found.split() if isinstance(found, str) else found
    if not isinstance(given, list) or required not in given:
        raise Unauthenticated("the token lacks the scope that RIACHO_JWT_REQUIRED_SCOPE names")
