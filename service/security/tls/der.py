"""What Riacho wants from an X.509 certificate, read from its DER encoding.

    Certificate ─ TBSCertificate ─ [version] serial algorithm issuer VALIDITY SUBJECT …

Python's own `getpeercert()` drops the types of values, and whether names are in one set, so a
subject cannot be rendered from it as Java renders it. `cryptography` is not needed for this.
"""

from calendar import timegm
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import strptime
from typing import Final

from storage.errors import InvalidConfig

SEQUENCE: Final = 0x30
SET: Final = 0x31
OID: Final = 0x06
UTC_TIME: Final = 0x17
VERSION: Final = 0xA0

_UTF_8: Final = (0x0C, 0x13, 0x14, 0x16, 0x1B)
"""UTF8String, PrintableString, T61String, IA5String, GeneralString: all are read as UTF-8."""

_STRINGS: Final = {**dict.fromkeys(_UTF_8, "utf-8"), 0x1C: "utf-32-be", 0x1E: "utf-16-be"}


@dataclass(frozen=True, slots=True)
class Attribute:
    """A type and a value of a distinguished name."""

    oid: str
    text: str | None
    """None if the value is no string, or none that can be read."""
    encoded: bytes
    """The value with its tag and length."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    subject: tuple[tuple[Attribute, ...], ...]
    """The relative distinguished names, in the order in which they are encoded."""
    not_before_s: int
    not_after_s: int


def certificate_facts(der: bytes) -> CertificateFacts:
    """Return what an encoded certificate says, or raise `InvalidConfig`."""
    try:
        return _certificate(der)
    except (ValueError, IndexError, StopIteration) as error:
        raise InvalidConfig(f"not a certificate: {error or type(error).__name__}") from None


def _certificate(der: bytes) -> CertificateFacts:
    [(_, certificate, _)] = _items(der)
    _, signed, _ = next(_items(certificate))
    fields = [each for each in _items(signed) if each[0] != VERSION]
    _, _, _, validity, subject = fields[:5]  # The others: serial number, algorithm, issuer.
    not_before_s, not_after_s = (_time_s(tag, text) for tag, text, _ in _items(validity[1]))
    return CertificateFacts(name_of(subject[2]), not_before_s, not_after_s)


def name_of(der: bytes) -> tuple[tuple[Attribute, ...], ...]:
    """Return an encoded distinguished name; raises `ValueError` if it is none."""
    [(tag, names, _)] = _items(der)
    if tag != SEQUENCE:
        raise ValueError("a name is a sequence")
    return tuple(
        tuple(_attribute(pair) for _, pair, _ in _items(together))
        for _, together, _ in _items(names)
    )


def _attribute(pair: bytes) -> Attribute:
    (_, oid, _), (tag, value, encoded) = _items(pair)
    text = None
    if tag in _STRINGS:
        # Not with replacements: two names that differ must not become one.
        with suppress(UnicodeDecodeError):
            text = value.decode(_STRINGS[tag])
    return Attribute(_dotted(oid), text, encoded)


def _items(data: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the tag, the content and the whole encoding of what is in `data`, one after another."""
    position = 0
    while position < len(data):
        start = position
        tag, length = data[position], data[position + 1]
        position += 2
        if length & 0x80:
            size = length & 0x7F
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data) or length > len(data):
            raise ValueError("an item is longer than what holds it")
        yield tag, data[position:end], data[start:end]
        position = end


def _dotted(oid: bytes) -> str:
    numbers, number = [], 0
    for byte in oid:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, [first, numbers[0] - 40 * first, *numbers[1:]]))


def _time_s(tag: int, text: bytes) -> int:
    """Return a time of a certificate as seconds since 1970: always UTC, without fractions."""
    digits = text.decode("ascii")
    if tag == UTC_TIME:
        # Two digits of the year: 50 to 99 are those of the last century.
        digits = ("19" if digits >= "5" else "20") + digits
    return timegm(strptime(digits, "%Y%m%d%H%M%SZ"))
