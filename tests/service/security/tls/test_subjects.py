"""Subjects of certificates: rendered as Java renders them, mapped as Kafka maps them."""

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from service.security.tls.der import certificate_facts, name_of
from service.security.tls.subjects import (
    KEYWORDS,
    parse_rules,
    principal_mapper,
    principal_of,
    rendered,
)
from storage.errors import InvalidConfig, Unauthenticated
from tests.examples import some

RENDERED_BY_JAVA = [
    ("3000", ""),
    (
        "303d310b30090603550406130242523110300e060355040a0c074578616d706c65310e300c060355040b0c0553"
        "616c6573310c300a06035504030c03616e61",
        "CN=ana,OU=Sales,O=Example,C=BR",
    ),
    (
        "302a3128302606035504030c1f20616e612c202274686522203c66697273743e3b20612b623d635c64202320",
        """CN=\\ ana\\, \\"the\\" \\<first\\>\\; a\\+b\\=c\\\\d \\#\\ """,
    ),
    (
        "3036310e300c06035504030c052368617368310c300a06035504030c032020203116301406035504030c0d6e75"
        "6c0020746162092063720d",
        "CN=nul\\00 tab\t cr\\\r,CN=\\ \\ \\ ,CN=\\#hash",
    ),
    (
        "303b311e301c06092a864886f70d010901160f616e61406578616d706c652e6f7267310b300906035504051302"
        "3432310c300a06035504030c03616e61",
        "CN=ana,2.5.4.5=#13023432,1.2.840.113549.1.9.1=#160f616e61406578616d706c652e6f7267",
    ),
    (
        "3035311e300a06035504030c03616e613010060a0992268993f22c6401010c02753131133011060a0992268993"
        "f22c64011916036f7267",
        "DC=org,CN=ana+UID=u1",
    ),
    (
        "30473113301106035504030c0a4a6f73c3a920f09f9880310e300c06035504090c053120527561311330110603"
        "5504070c0a53c3a36f205061756c6f310b300906035504080c025350",
        "ST=SP,L=São Paulo,STREET=1 Rua,CN=José 😀",
    ),
]
"""Names, and what `new X500Principal(bytes).getName()` of OpenJDK 17 returned for them."""


@pytest.mark.parametrize(("encoded", "expected"), RENDERED_BY_JAVA)
def test_a_name_is_rendered_as_java_renders_it(encoded: str, expected: str) -> None:
    assert rendered(name_of(bytes.fromhex(encoded))) == expected


KNOWN = [
    x509.ObjectIdentifier(oid) for oid in KEYWORDS if oid != NameOID.COUNTRY_NAME.dotted_string
]
VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r"), min_size=1)


@some
@given(st.lists(st.tuples(st.sampled_from(KNOWN), VALUES), min_size=1, max_size=5))
def test_nothing_of_a_name_is_lost_or_confused(
    pairs: list[tuple[x509.ObjectIdentifier, str]],
) -> None:
    """Two names that differ are never rendered alike: another parser returns what was there."""
    name = x509.Name([x509.NameAttribute(oid, text, _validate=False) for oid, text in pairs])

    again = x509.Name.from_rfc4514_string(rendered(name_of(name.public_bytes())))

    assert [(each.oid, each.value) for each in again] == pairs


@some
@given(st.binary(max_size=200))
def test_bytes_that_are_no_certificate_are_refused(data: bytes) -> None:
    with pytest.raises(InvalidConfig):
        certificate_facts(data)


ANA = "CN=ana,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"
BIA = "CN=Bia,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown"

FROM_KAFKAS_PAGES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,"
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L,"
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,"
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("rules", "subject", "principal"),
    [
        ("", ANA, f"User:{ANA}"),
        ("DEFAULT", ANA, f"User:{ANA}"),
        (FROM_KAFKAS_PAGES, ANA, "User:ana"),
        (FROM_KAFKAS_PAGES, BIA, "User:bia@admin"),
        (FROM_KAFKAS_PAGES, "OU=x,CN=Carla.1,O=y", "User:carla.1"),
        (FROM_KAFKAS_PAGES, "O=nobody", "User:O=nobody"),
        (" RULE:^CN=(.*?),.*$/$1/U ,\n DEFAULT ", BIA, "User:BIA"),
        # The first match wins, and a rule matches all of a subject or not at all.
        ("RULE:CN=ana/short/,RULE:CN=(ana).*/$1-2/,DEFAULT", ANA, "User:ana-2"),
        # A slash and a comma inside a rule.
        (r"RULE:^CN=(\w+)\/(\w+),.*$/$2\/$1,x/,DEFAULT", "CN=a/b,O=c", "User:b/a,x"),
        (r"RULE:^CN=(.*?),.*$/\$1-$0/", "CN=a,O=c", "User:$1-CN=a,O=c"),
        # References to groups that there are not.
        ("RULE:^CN=(.*?),.*$/$1@$4/", "CN=a,O=c", "User:a@$4"),
        ("RULE:^CN=(.*?),.*$/$12/", "CN=a,O=c", "User:a2"),
        ("RULE:^CN=(.*?)(,X=.)?,O=.*$/[$2]/", "CN=a,O=c", "User:[]"),
    ],
)
def test_rules_map_as_in_kafka(rules: str, subject: str, principal: str) -> None:
    assert principal_of(subject, rules) == principal


def test_a_subject_that_no_rule_matches_is_refused() -> None:
    with pytest.raises(Unauthenticated, match="no rule"):
        principal_of("O=nobody", "RULE:^CN=(.*?),.*$/$1/L")


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "RULE:^CN=(.*)$",
        "RULE:^CN=(.*)$/$1",
        "RULE:a/b/L RULE:c/d/",
        "RULE:a/b/X",
        "DEFAULT;DEFAULT",
        "RULE:(/b/",
        "RULE:(a)\\1/b/",
        "RULE:(?=a)a/b/",
    ],
)
def test_rules_that_are_none_are_refused(rules: str) -> None:
    with pytest.raises(InvalidConfig, match=r"ssl\.principal\.mapping\.rules"):
        parse_rules(rules)


@some
@given(
    st.text(max_size=40) | st.from_regex(r"(RULE:[a-z.*()]{0,8}/[$0-9a\\]{0,6}/[LU]?,?){1,3}"),
    st.text(max_size=40),
)
def test_any_rules_and_any_subject_give_a_principal_or_a_refusal(rules: str, subject: str) -> None:
    try:
        principal = principal_mapper(rules)(subject)
    except (InvalidConfig, Unauthenticated):
        return
    assert principal.startswith("User:")


def test_a_pattern_takes_time_in_proportion() -> None:
    with pytest.raises(Unauthenticated):
        principal_of("CN=" + "a" * 50_000, "RULE:^CN=(a+a+)+b$/$1/")
