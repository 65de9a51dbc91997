"""From the subject of a client certificate to a principal, as Kafka does it.

A subject is rendered as RFC 4514 (and Java's `X500Principal.getName()`) has it, the last part of
the encoding first: `CN=ana,OU=Sales,O=Example,C=BR`. Then the first rule of
`ssl.principal.mapping.rules` that matches all of it makes the principal's name:

    RULE:^CN=(.*?),OU=Sales.*$/$1/L,          User:ana
    RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/,
    DEFAULT                                   User:CN=ana,OU=Sales,O=Example,C=BR

`L` and `U` make the result lower or upper case. A subject that no rule matches is refused. Patterns
are those of RE2, which takes time proportional to the subject: it has neither look-around nor
back-references inside a pattern.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from service.security.tls.der import Attribute, certificate_facts
from storage.errors import InvalidConfig, Unauthenticated

DEFAULT: Final = "DEFAULT"

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
"""Types that have a name in RFC 4514; others are written as numbers, with an encoded value."""

_SPECIAL: Final = re.compile(r'[,=+<>#;"\\]')

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)"
    r"|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<replacement>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_PART: Final = re.compile(
    r"\\(?P<escaped>.)|\$(?P<group>[0-9]+)|(?P<text>[^\\$]+|\$|\\)", re.DOTALL
)


def subject_of(der: bytes) -> str:
    """Return the subject of an encoded certificate; raises `InvalidConfig` if it is none."""
    return rendered(certificate_facts(der).subject)


def rendered(subject: tuple[tuple[Attribute, ...], ...]) -> str:
    """Return a distinguished name as RFC 4514 has it."""
    return ",".join("+".join(map(_pair, together)) for together in reversed(subject))


def _pair(attribute: Attribute) -> str:
    keyword = KEYWORDS.get(attribute.oid)
    if keyword is None or attribute.text is None:
        return f"{keyword or attribute.oid}=#{attribute.encoded.hex()}"
    text = _SPECIAL.sub(r"\\\g<0>", attribute.text).replace("\0", r"\00")
    return f"{keyword}={_with_edges_escaped(text)}"


def _with_edges_escaped(text: str) -> str:
    """Return `text` with a backslash before each space at its beginning and end."""
    start = len(text) - len(text.lstrip(" \r"))
    end = len(text.rstrip(" \r"))
    if start == len(text):
        return "".join(f"\\{each}" for each in text)
    before = "".join(f"\\{each}" for each in text[:start])
    after = "".join(f"\\{each}" for each in text[end:])
    return before + text[start:end] + after


def principal_of(subject: str, rules: str = DEFAULT) -> str:
    """Return the principal of a client certificate, `User:…`.

    Raises `Unauthenticated` if no rule matches, and `InvalidConfig` for rules that are none.
    """
    return principal_mapper(rules)(subject)


@lru_cache(maxsize=16)
def principal_mapper(rules: str) -> Callable[[str], str]:
    """Return what maps subjects by `rules`, or raise `InvalidConfig`."""
    parsed = parse_rules(rules)

    def principal(subject: str) -> str:
        for rule in parsed:
            if (name := rule.name(subject)) is not None:
                return f"User:{name}"
        raise Unauthenticated(
            f"no rule of ssl.principal.mapping.rules matches the certificate of {subject!r}"
        )

    return principal


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; without a pattern it is `DEFAULT`, which takes every subject as it is."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""

    def name(self, subject: str) -> str | None:
        """Return the name that the rule makes of a subject, or None if it does not match."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        groups = [found.group(0), *found.groups()]
        name = "".join(_part(part, groups) for part in _PART.finditer(self.replacement))
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()


def _part(part: re.Match[str], groups: list[str | None]) -> str:
    if (escaped := part["escaped"]) is not None:
        return escaped
    if (digits := part["group"]) is None:
        return part["text"]
    # As in Kafka: $12 is group 1 and then a 2 where there are not twelve groups, and text where
    # there is none.
    for count in range(len(digits), 0, -1):
        if int(digits[:count]) < len(groups):
            return (groups[int(digits[:count])] or "") + digits[count:]
    return f"${digits}"


def parse_rules(text: str) -> tuple[Rule, ...]:
    """Return the rules of `ssl.principal.mapping.rules`; none means `DEFAULT`."""
    text = text.strip()
    rules, position = [], 0
    while position < len(text):
        found = _RULE.match(text, position)
        if found is None:
            raise InvalidConfig(
                f"ssl.principal.mapping.rules: {text[position:]!r} is no rule; one is DEFAULT or"
                " RULE:pattern/replacement/ with L or U at its end, and commas separate them"
            )
        rules.append(_rule(found))
        position = found.end()
    return tuple(rules) or (Rule(),)


def _rule(found: re.Match[str]) -> Rule:
    if found["default"]:
        return Rule()
    # Imported here: only gateways that ask for certificates have rules.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(found["pattern"], options)
    except re2.error as error:
        [reason] = error.args
        reason = reason.decode(errors="replace") if isinstance(reason, bytes) else reason
        raise InvalidConfig(
            f"ssl.principal.mapping.rules: {found['pattern']!r} is no pattern of RE2: {reason}"
        ) from None
    return Rule(compiled, found["replacement"], found["case"])
