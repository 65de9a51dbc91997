"""A list of all decoders, and the functions that look like one but are not tried, with reasons."""

from tests.fuzz import (
    batches,
    connect,
    connect_calls,
    connect_texts,
    kafka,
    postgres,
    received,
    registry,
    replies,
    schemas,
    security,
    stored,
    tasks,
)

ALL = [
    *stored.ALL,
    *received.ALL,
    *tasks.ALL,
    *replies.ALL,
    *security.ALL,
    *batches.ALL,
    *kafka.ALL,
    *schemas.ALL,
    *registry.ALL,
    *connect.ALL,
    *postgres.ALL,
    *connect_calls.ALL,
    *connect_texts.ALL,
]

OURS = "takes what this process has made, not bytes of others"
REGISTERED = "a schema that the registry has accepted"
BY_CODECS = "splits frames by framing, and decodes by the codec of a schema"

POSTGRES = "service.connect.connectors.postgres"
CONVERTERS = "service.connect.converters.registry"

NOT_TRIED = {
    f"{POSTGRES}.position.PgSnapshot.parsed": "text; tests/…/postgres/test_position.py",
    f"{POSTGRES}.text_values.bytea": "text; tests/…/postgres/test_text_values.py",
    "service.connect.connectors.jdbc.source.task.JdbcSourceTask.__init__": "made by planned_tasks",
    "service.connect.tasks.offsets.StoredOffsets.all": "JSON in an item that decode_offset decoded",
    "service.connect.tasks.offsets._offset_of": "JSON in an item that decode_offset decoded",
    f"{CONVERTERS}.converter.decoded": BY_CODECS,
    f"{CONVERTERS}.json_schema.mapping.JsonSchemaMapping.reader": "tests/…/converters/registry",
    "storage.formats.kafka.compression._inflated": "the part of unpack for streams",
    "storage.formats.kafka.compression._unpack_snappy": "the part of unpack for snappy",
    "storage.formats.kafka.compression._whole": "the part of unpack for one block",
    "riacho.cli.records.decoding.RecordDecoder.decoded": BY_CODECS,
    "riacho.cli.schemas.options.pretty": REGISTERED,
    "riacho.schemas.codecs.Codecs._descriptors": REGISTERED,
    "riacho.schemas.deserializers.Deserializer._decoded": BY_CODECS,
    "riacho.schemas.deserializers.Deserializer.decode": BY_CODECS,
    "riacho.schemas.deserializers.Deserializer.decode_key": BY_CODECS,
    "riacho.schemas.differences.changes": REGISTERED,
    "riacho.schemas.subjects.record_name": "a schema that the program itself has",
    "riacho.cli.security.store.create_key": "options of whoever owns the stores",
    "riacho.spark.read.direct._read_data": "a URL of our own gateway; what is read has a checksum",
    "riacho.spark.read.log.Log._data_key": "an answer of our own gateway",
    "riacho.spark.read.sealed.DataKeys.unseal": "opens by AES-GCM; see tests/storage/crypto",
    "service.process.references.references.SecretReferences._of_aws": "a secret that the operator"
    " names; tests/service/process/references",
    "storage.formats.kafka.batches._header": "the part of batches that reads a header, whose size"
    " was checked",
    "service.kafka.listener.dispatch.Dispatch._decoded_soon": "decodes by decoded, or in a thread",
    "service.kafka.listener.dispatch.Dispatch.decoded": "decodes by codec.decode_request",
    "riacho.spark.read.columns.SourceColumns._stream": "the Arrow part of decode_slices",
    "storage.maintenance.compaction.reading._each_decoded": "decodes by kafka.decode, or slices"
    " whose checksums are right",
    "service.kafka.protocol.notation.Versions.parse": "definitions in our own sources",
    "service.kafka.protocol.reading._unpack": "makes what readers call; tried with them",
    "service.kafka.protocol.reading._unpack_many": "makes what readers call; tried with them",
    "storage.formats.compacted._options": OURS,
    "storage.schemas.columns.Decoder.decode": "a protocol, which the types of schemas keep",
    "storage.schemas.columns_avro._plain": REGISTERED,
    "storage.schemas.columns_json.JsonDecoder.__init__": REGISTERED,
    "riacho.spark.write.options._parse": "the common part of parse_batch and parse_stream",
    "riacho.spark.read.spans._decoded": OURS,
    "service.routes.cluster.ClusterRoutes.describe_cluster": OURS,
    "service.routes.cluster._zone_info": OURS,
    "service.process.limits.compression.Inflation.__init__": "the part of decompress that inflates",
    "service.http.bodies.json_fetch._embedded": "whether a value is JSON: any value is answered",
    "service.groups.offsets.Offsets._unpacked": "decodes by _decode",
    "service.jobs.runners.spark_runner._unpacked": "tests/service/jobs/runners/test_task_errors.py",
    "storage.maintenance.compaction.swap._decoded": "decodes by storage.head.head.decode",
    "storage.crypto.keyring.OpenKey.unseal": "opens by AES-GCM; see tests/storage/crypto",
    "storage.maintenance.compaction.reading.UnitReader._unseal": "returns what opens row groups",
    "service.security.oidc.key_source.KeySource._discovered": "a page of the issuer that the"
    " operator names; tests/service/security/oidc",
    "storage.formats.frames.PayloadDecoder.decode": "a protocol, which msgspec keeps",
    "storage.formats.frames.decoded": "what all decoders of msgpack call",
    "storage.formats.frames.unpack": "what all decoders of msgpack in frames call",
    "storage.stores.opening._s3_options": "a URL that the operator wrote, refused at the start",
    "storage.reading.table_batches._old": "a key that this table has, by which it was listed",
    "service.http.bodies.json.UnencodedRecords.values_of": "values that were JSON when they came",
    "service.http.bodies.json_fetch._decoded_records": "whatever a record is, it is answered",
    "service.http.bodies.schema_fetch._decode": "decodes by a codec, which is tried",
    "service.http.bodies.schema_fetch._decoded": "decodes by a codec, which is tried",
    "service.http.bodies.schema_fetch._values": "decodes by a codec, which is tried",
    "service.http.bodies.schema_fetch.decoded_columns": "decodes by a codec, which is tried",
    "storage.schemas.avro.reading._natural": "reads the same bytes, other values",
    "storage.schemas.codec.Codec.decode_many": "a protocol, which each codec keeps",
    "storage.schemas.framing.id_of": "tests/storage/schemas/test_framing.py: any bytes",
    "service.registry.formats.form.SchemaForm.parse": "a protocol, which each form keeps",
    "service.registry.formats.metadata._object": "of JSON that was one when it came",
    "service.registry.formats.avro.tags.tags_of": "reads texts that were parsed before",
    "service.registry.formats.avro.tags.with_tags": "reads texts that were parsed before",
    "service.registry.edge.validation.record_names.record_names": "reads texts that were parsed"
    " when they were registered",
    "service.registry.edge.validation.fitting._misfits_as_json": "reads JSON by msgspec, and data"
    " by codecs, which are tried",
    "service.registry.reading.SchemaReader.parse": "calls the parser of a form, which is tried",
    "service.registry.reading.SchemaReader.parsed": "parses a schema that is registered",
    "storage.topics.config._parse_one": "the part of parse_config for one setting",
}
