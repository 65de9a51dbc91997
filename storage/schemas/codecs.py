"""The codec of a schema of any type."""

from storage.schemas.codec import Codec
from storage.schemas.source import InvalidSchema, SchemaSource, SchemaType


def codec_of(source: SchemaSource) -> Codec:
    """Return what encodes and decodes data of a schema, or raise `InvalidSchema`.

    It takes milliseconds: make it once for a schema, and keep it.
    """
    try:
        if source.type is SchemaType.AVRO:
            from storage.schemas.avro.codec import AvroCodec

            return AvroCodec(source)
        if source.type is SchemaType.JSON:
            from storage.schemas.json_schema.codec import JsonCodec

            return JsonCodec.of(source)
        from storage.schemas.protobuf.codec import ProtobufCodec

        return ProtobufCodec(source)
    except ModuleNotFoundError as error:
        raise InvalidSchema(
            f"schemas of type {source.type} need {error.name!r}; pip install 'riacho[schemas]'"
        ) from None
