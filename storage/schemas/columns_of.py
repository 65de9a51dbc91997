"""What reads data of a schema of any type into columns."""

from storage.schemas.columns import Decoder
from storage.schemas.columns_rows import Indexes
from storage.schemas.source import SchemaSource, SchemaType


def decoder_of(source: SchemaSource, indexes: Indexes = (0,)) -> Decoder:
    """Return what reads data of a schema; of Protobuf, one message, without its indexes.

    Raises `InvalidSchema` or `ValueError` if there is no such message, or it has no columns, and
    `ModuleNotFoundError` if the library of its type is not installed.
    """
    if source.type is SchemaType.AVRO:
        from storage.schemas.columns_avro import AvroDecoder

        return AvroDecoder(source)
    if source.type is SchemaType.JSON:
        from storage.schemas.columns_json import JsonDecoder

        return JsonDecoder(source.text, {each.name: each.text for each in source.references})
    from google.protobuf.descriptor_pb2 import FileDescriptorSet

    from storage.schemas.columns_protobuf import ProtobufDecoder

    return ProtobufDecoder(FileDescriptorSet.FromString(source.descriptors).file, indexes)
