"""JSON Schema for Connect, as Confluent's `JsonSchemaData` maps schemas and values."""
