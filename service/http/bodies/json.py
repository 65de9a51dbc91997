"""JSON and NDJSON produce bodies, decoded to Arrow.

    {"records": [{"key", "value", "headers", "timestamp", "partition"}]}      or one per line

Every field may be left out. A string stands for its UTF-8 bytes, null for null, any other
JSON for its text exactly as it was sent; `key_base64` and `value_base64` carry other bytes.
`headers` is an object, or an array of {"key", "value" | "value_base64"}.

Most keys and values are strings, which a typed decoder decodes in one pass. A body that it
refuses is retried with a decoder that keeps the raw text of values, since objects with string
keys are the next most common, and then with one that keeps the raw text of everything. If that
one refuses the body, the sender made a mistake, so error messages are made there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import msgspec
import pyarrow as pa
from msgspec import Meta, Raw, Struct

from service.http.bodies.fields import Base64, Offset, PartitionNumber, TopicName
from service.http.bodies.json_errors import explained, not_json
from service.http.bodies.json_shape import check_shape
from service.process.limits.record_limits import RecordLimits, check_batch, check_count
from storage.errors import InvalidRequest
from storage.formats.records import HEADERS_TYPE, RECORD_SCHEMA, no_headers

Decoded: TypeAlias = "tuple[pa.RecordBatch, list[PartitionNumber | None] | None]"
"""The records, and the requested partition of each; None: none is requested."""

Part: TypeAlias = Literal["key", "value"]

_Json: TypeAlias = Annotated[
    Raw, Meta(description="text is its UTF-8 bytes, other JSON its JSON text, null is null")
]
_NULL: Final = Raw(b"null")
# What the decoders raise: UTF-8 is checked apart from JSON, and Python limits nesting.
_REFUSALS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


@dataclass(frozen=True, slots=True)
class ChosenSchema:
    """The schema of all keys or of all values of a request, as its sender names it."""

    part: Part
    schema_id: int | None = None
    text: str | None = None
    kind: str | None = None
    subject: str | None = None
    version: int | None = None

    def checked(self) -> Self:
        """Return it, or raise `InvalidRequest` unless it names one schema, in one way."""
        part = self.part
        by_id, by_text, by_subject = self.schema_id, self.text, self.subject
        if by_id is not None and (by_text is not None or by_subject is not None):
            raise InvalidRequest(
                f"{part}_schema_id: give it alone, without {part}_schema and {part}_subject"
            )
        if by_id is None and by_text is None and by_subject is None:
            raise InvalidRequest(f"give {part}_schema_id, {part}_schema or {part}_subject, too")
        if self.kind is not None and by_text is None:
            raise InvalidRequest(f"{part}_schema_type: give {part}_schema, too")
        if self.version is not None and (by_subject is None or by_text is not None):
            raise InvalidRequest(f"{part}_version: give {part}_subject, too, and no {part}_schema")
        return self


class _Plain(Struct, gc=False, forbid_unknown_fields=True):
    """The most common record: no other fields need to be checked."""

    key: str | None = None
    value: str | None = None


class _PlainBody(Struct, gc=False, forbid_unknown_fields=True):
    records: list[_Plain]


class _Common(Struct, gc=False, forbid_unknown_fields=True):
    timestamp: Offset | None = None
    partition: PartitionNumber | None = None
    key_base64: Base64 | None = None
    value_base64: Base64 | None = None


class _Header(Struct, gc=False, forbid_unknown_fields=True):
    key: str
    value: str | None = None
    value_base64: bytes | None = None


class _Record(_Common, gc=False):
    key: str | None = None
    value: str | None = None
    headers: dict[str, str | None] | list[_Header] | None = None


class _Body(Struct, gc=False, forbid_unknown_fields=True):
    records: list[_Record]


class _RecordOfRawValue(_Common, gc=False):
    key: str | None = None
    value: Raw = _NULL
    headers: dict[str, str | None] | list[_Header] | None = None


class _BodyOfRawValues(Struct, gc=False, forbid_unknown_fields=True):
    records: list[_RecordOfRawValue]


_SchemaId: TypeAlias = Annotated[int, Meta(ge=1, le=2**31 - 1)]
_SchemaText: TypeAlias = Annotated[
    str, Meta(description="registered under the subject, which is <topic>-value or <topic>-key")
]
_SchemaKind: TypeAlias = Annotated[
    Literal["AVRO", "JSON", "PROTOBUF"], Meta(description="of the text; AVRO if left out")
]
_Subject: TypeAlias = str
_Version: TypeAlias = Annotated[
    int, Meta(ge=1, le=2**31 - 1, description="of the subject; the latest if left out")
]


def _null() -> Raw:
    return _NULL


class ProduceHeader(Struct, gc=False, forbid_unknown_fields=True):
    key: str
    # From a function, since a schema cannot show raw JSON as a default.
    value: _Json = msgspec.field(default_factory=_null)
    value_base64: Base64 | None = None


# The widest form, so the OpenAPI document shows it: other decoders take a part of it, faster.
class ProduceRecord(_Common, gc=False):
    """A record to produce; every field may be left out."""

    key: _Json = msgspec.field(default_factory=_null)
    value: _Json = msgspec.field(default_factory=_null)
    headers: dict[str, _Json] | list[ProduceHeader] | None = None


class ProduceBody(Struct, gc=False, forbid_unknown_fields=True, kw_only=True):
    """Records, and the schemas that all their keys and values have.

    A schema is named by its id, by a subject and perhaps its version, or by its text, which is
    registered.
    """

    records: Annotated[list[ProduceRecord], Meta(extra_json_schema={"minItems": 1})]
    value_schema_id: _SchemaId | None = None
    value_schema: _SchemaText | None = None
    value_schema_type: _SchemaKind | None = None
    value_subject: _Subject | None = None
    value_version: _Version | None = None
    key_schema_id: _SchemaId | None = None
    key_schema: _SchemaText | None = None
    key_schema_type: _SchemaKind | None = None
    key_subject: _Subject | None = None
    key_version: _Version | None = None

    def chosen(self, part: Part) -> ChosenSchema | None:
        """Return which schema the keys or the values have, if that is said."""
        found = ChosenSchema(
            part,
            getattr(self, f"{part}_schema_id"),
            getattr(self, f"{part}_schema"),
            getattr(self, f"{part}_schema_type"),
            getattr(self, f"{part}_subject"),
            getattr(self, f"{part}_version"),
        )
        return None if found == ChosenSchema(part) else found.checked()


class TopicRecord(_Record, gc=False, kw_only=True):
    """A record that names its topic, since the path does not."""

    topic: str


class AtomicRecord(ProduceRecord, gc=False, kw_only=True):
    """A record to produce that names its topic."""

    topic: TopicName


_PLAIN_BODY: Final = msgspec.json.Decoder(_PlainBody)
_BODIES: Final = (msgspec.json.Decoder(_Body), msgspec.json.Decoder(_BodyOfRawValues))
_RAW_BODY: Final = msgspec.json.Decoder(ProduceBody)
_LINES: Final = (msgspec.json.Decoder(_Record), msgspec.json.Decoder(_RecordOfRawValue))
_RAW_LINE: Final = msgspec.json.Decoder(ProduceRecord)
_TEXT: Final = msgspec.json.Decoder(str)
_ANY: Final = msgspec.json.Decoder()
_BEHIND_BYTES: Final = 200
_STARTS_OF_OTHER_JSON: Final = b"{[-0123456789tf"

_Records: TypeAlias = Sequence[_Record] | Sequence[_RecordOfRawValue] | Sequence[ProduceRecord]
_Stored: TypeAlias = str | bytes | None


def decode_json(body: bytes, *, now_ms: int, limits: RecordLimits) -> "Decoded | UnencodedRecords":
    """Return the records of a JSON body; those without a timestamp get `now_ms`.

    Of records whose schema the body names, nothing is encoded yet.
    """
    check_shape(body, limits)
    if not _ends_with_schemas(body):
        try:
            plain = _PLAIN_BODY.decode(body).records
        except _REFUSALS:
            pass
        else:
            return _decoded_plain(plain, len(body), now_ms, limits)
        if (records := _common_records(body)) is not None:
            return decoded_records(records, len(body), now_ms, limits)
    whole = _raw_body(body)
    unencoded = _unencoded(whole, body, now_ms, limits)
    return unencoded or decoded_records(whole.records, len(body), now_ms, limits)


def decode_ndjson(body: bytes, *, now_ms: int, limits: RecordLimits) -> Decoded:
    """Return the records of an NDJSON body; those without a timestamp get `now_ms`."""
    check_shape(body, limits, is_lines=True)
    return decoded_records(_lines(body), len(body), now_ms, limits)


def _common_records(body: bytes) -> _Records | None:
    for decoder in _BODIES:
        try:
            records: _Records = decoder.decode(body).records
        except _REFUSALS:
            continue
        if _is_trusted(records, body):
            return records
    return None


def _lines(body: bytes) -> _Records:
    # The decoder accepts any white space between records; this format has one record per line.
    line_count = body.count(b"\n") + (not body.endswith(b"\n"))
    for decoder in _LINES:
        try:
            records: _Records = decoder.decode_lines(body)
        except _REFUSALS:
            continue
        if len(records) == line_count and _is_trusted(records, body):
            return records
    return _raw_lines(body)


def _is_trusted(records: _Records, body: bytes) -> bool:
    """Whether every string of `body` is valid UTF-8: the decoder does not check raw values."""
    if not records or type(records[0]) is _Record or body.isascii():
        return True
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _ends_with_schemas(body: bytes) -> bool:
    """Whether fields behind the records may name schemas: those before them are seen at once."""
    end = body[-_BEHIND_BYTES:]
    return b'"value_' in end or b'"key_' in end


def _unencoded(
    whole: ProduceBody, body: bytes, now_ms: int, limits: RecordLimits
) -> "UnencodedRecords | None":
    key, value = whole.chosen("key"), whole.chosen("value")
    if key is None and value is None:
        return None
    check_count(len(whole.records), limits)
    return UnencodedRecords(whole.records, key, value, len(body), now_ms, limits)


def _raw_body(body: bytes) -> ProduceBody:
    try:
        body.decode()  # The decoder does not check raw values for UTF-8.
        return _RAW_BODY.decode(body)
    except msgspec.ValidationError as error:
        raise explained(error) from error
    except _REFUSALS as error:
        raise not_json(body, error) from error


def _raw_lines(body: bytes) -> list[ProduceRecord]:
    records: list[ProduceRecord] = []
    # No split(): millions of empty lines would create as many objects.
    for number, line in enumerate(BytesIO(body), 1):
        if not line.strip():
            continue
        try:
            line.decode()
            records.append(_RAW_LINE.decode(line))
        except msgspec.ValidationError as error:
            raise explained(error, number) from error
        except _REFUSALS as error:
            raise not_json(line, error, number) from error
    return records


def decoded_records(
    records: _Records, body_bytes: int, now_ms: int, limits: RecordLimits
) -> Decoded:
    """Return the batch of records decoded from a body of `body_bytes`."""
    count = len(records)
    check_count(count, limits)
    batch = pa.RecordBatch.from_arrays(
        [
            _timestamps([record.timestamp for record in records], now_ms),
            pa.array(_keys(records), pa.binary()),
            pa.array(_values(records), pa.binary()),
            _headers(records),
        ],
        schema=RECORD_SCHEMA,
    )
    # JSON is never shorter than the bytes it stands for.
    check_batch(batch, limits, body_bytes)
    partitions = [record.partition for record in records]
    return batch, None if partitions.count(None) == count else partitions


def _decoded_plain(
    records: Sequence[_Plain], body_bytes: int, now_ms: int, limits: RecordLimits
) -> Decoded:
    count = len(records)
    check_count(count, limits)
    batch = pa.RecordBatch.from_arrays(
        [
            pa.repeat(pa.scalar(now_ms, pa.int64()), count),
            pa.array([record.key for record in records], pa.binary()),
            pa.array([record.value for record in records], pa.binary()),
            no_headers(count),
        ],
        schema=RECORD_SCHEMA,
    )
    check_batch(batch, limits, body_bytes)
    return batch, None


@dataclass(frozen=True, slots=True)
class UnencodedRecords:
    """Records whose keys, values or both are still to be encoded by a schema."""

    records: Sequence[ProduceRecord]
    key: ChosenSchema | None
    value: ChosenSchema | None
    body_bytes: int
    now_ms: int
    limits: RecordLimits

    def values_of(self, part: Part) -> list[Any]:
        """Return the JSON values of the keys or the values, or raise `InvalidRequest`."""
        is_key = part == "key"
        for index, record in enumerate(self.records):
            if (record.key_base64 if is_key else record.value_base64) is not None:
                raise InvalidRequest(
                    f"records[{index}].{part}_base64: a {part} that has a schema is sent as JSON"
                )
        found = [record.key if is_key else record.value for record in self.records]
        try:
            return [_ANY.decode(each) for each in found]
        except _REFUSALS as error:
            raise InvalidRequest(f"records: a {part} is not acceptable JSON: {error}") from None

    def with_bodies(
        self, keys: Sequence[bytes | None] | None, values: Sequence[bytes | None] | None
    ) -> Decoded:
        """Return the records with these keys and values; None: as they came."""
        count = len(self.records)
        batch = pa.RecordBatch.from_arrays(
            [
                _timestamps([record.timestamp for record in self.records], self.now_ms),
                pa.array(_keys(self.records) if keys is None else keys, pa.binary()),
                pa.array(_values(self.records) if values is None else values, pa.binary()),
                _headers(self.records),
            ],
            schema=RECORD_SCHEMA,
        )
        check_batch(batch, self.limits, max(self.body_bytes, batch.nbytes))
        partitions = [record.partition for record in self.records]
        return batch, None if partitions.count(None) == count else partitions


def _timestamps(stamps: list[int | None], now_ms: int) -> pa.Array:
    missing = stamps.count(None)
    if missing == len(stamps):
        return pa.repeat(pa.scalar(now_ms, pa.int64()), missing)
    return pa.array([now_ms if stamp is None else stamp for stamp in stamps], pa.int64())


def _keys(records: _Records) -> list[_Stored]:
    keys = _stored_all([record.key for record in records])
    return _merged("records", "key", keys, [record.key_base64 for record in records])


def _values(records: _Records) -> list[_Stored]:
    values = _stored_all([record.value for record in records])
    return _merged("records", "value", values, [record.value_base64 for record in records])


def _stored_all(fields: list[Any]) -> list[_Stored]:
    """Return what is stored for fields: the bytes of a string, or the text of other JSON."""
    if Raw not in {*map(type, fields)}:
        return fields
    return [_stored(field) if type(field) is Raw else field for field in fields]


def _stored(field: Raw) -> _Stored:
    text = bytes(field)
    if text[0] in _STARTS_OF_OTHER_JSON:
        return text
    return None if text == b"null" else _TEXT.decode(text)


def _merged(
    place: str, name: str, plain: list[_Stored], decoded: list[bytes | None]
) -> list[_Stored]:
    """Return one of the two for every item, and refuse items that have both."""
    if decoded.count(None) == len(decoded):
        return plain
    for index, (one, other) in enumerate(zip(plain, decoded, strict=True)):
        if one is not None and other is not None:
            raise InvalidRequest(f"{place}[{index}]: has both {name} and {name}_base64; send one")
    return [one if other is None else other for one, other in zip(plain, decoded, strict=True)]


def _headers(records: _Records) -> pa.Array:
    sent = [record.headers for record in records]
    if not any(sent):
        return pa.nulls(len(sent), HEADERS_TYPE)
    names: list[str] = []
    values: list[Any] = []
    # Arrow treats a null offset as a null list: no headers, as when none were sent at all.
    offsets: list[int | None] = []
    for index, headers in enumerate(sent):
        offsets.append(len(names) if headers else None)
        if isinstance(headers, dict):
            names.extend(headers)
            values.extend(headers.values())
        elif headers:
            names.extend(header.key for header in headers)
            values.extend(_header_values(index, headers))
    entries = pa.StructArray.from_arrays(
        [pa.array(names, pa.string()), pa.array(_stored_all(values), pa.binary())],
        fields=list(HEADERS_TYPE.value_type),
    )
    offsets.append(len(names))
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), entries, type=HEADERS_TYPE)


def _header_values(
    index: int, headers: Sequence[_Header] | Sequence[ProduceHeader]
) -> list[_Stored]:
    plain = _stored_all([header.value for header in headers])
    decoded = [header.value_base64 for header in headers]
    return _merged(f"records[{index}].headers", "value", plain, decoded)
