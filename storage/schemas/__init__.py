r"""Records that follow a schema: how they are framed, and data of Avro, JSON Schema and Protobuf.

    from storage.schemas.codecs import codec_of
    from storage.schemas.framing import framed, split
    from storage.schemas.source import SchemaSource, SchemaType

    codec = codec_of(SchemaSource(SchemaType.AVRO, text))    # once for a schema; then keep it
    encoded = codec.encode_many([{"amount": 3}, {"amount": "x"}])
    encoded.bodies                 # [b"\x06", None]
    encoded.refused                # [RefusedValue(index=1, path="/amount", reason="…")]
    value = framed(schema_id, encoded.bodies[0])
    schema_id, body = split(value)
    codec.decode_many([body]).values                         # [{"amount": 3}]

`codec.py` is the contract, `framing.py` the bytes before the data, each folder one type of schema.
Everything here is pure and safe for threads; a library is imported by the first codec that needs
it. Whatever bytes come, one call takes bounded time and memory.
"""
