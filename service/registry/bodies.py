"""Bodies of the registry's calls, as Confluent's clients send them."""

from typing import Annotated, Any, Final

import msgspec

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"


class ReferenceBody(msgspec.Struct):
    """A schema that the schema refers to."""

    name: str
    subject: str
    version: Annotated[int, msgspec.Meta(description="-1: the latest")] = -1


class SchemaBody(msgspec.Struct):
    """A schema to register, to look up, or to compare."""

    schema: str | None = ""
    schemaType: str | None = None  # noqa: N815 - as Confluent names it.
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815
    id: int | None = None
    version: int | None = None


class LevelBody(msgspec.Struct, omit_defaults=True):
    """What is set for a subject or for all."""

    compatibility: str | None = None
    normalize: bool | None = None
    alias: str | None = None
    validateFields: bool | None = None  # noqa: N815
    compatibilityGroup: str | None = None  # noqa: N815 - as Confluent names it.
    defaultMetadata: Any = None  # noqa: N815
    overrideMetadata: Any = None  # noqa: N815
    defaultRuleSet: Any = None  # noqa: N815
    overrideRuleSet: Any = None  # noqa: N815


class ModeBody(msgspec.Struct):
    mode: str | None = None


class RegistryProblem(msgspec.Struct):
    """What went wrong."""

    error_code: Annotated[int, msgspec.Meta(description="the status, or it and two more digits")]
    message: str
