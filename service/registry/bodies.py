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


class TaggedEntity(msgspec.Struct):
    """A part of a schema."""

    entityPath: str  # noqa: N815 - as Confluent names it.
    entityType: str | None = None  # noqa: N815


class PartTags(msgspec.Struct):
    """Tags of a part of a schema."""

    schemaEntity: TaggedEntity  # noqa: N815 - as Confluent names it.
    tags: list[str]


class TagBody(msgspec.Struct):
    """What another version of a schema has besides."""

    newVersion: int | None = None  # noqa: N815 - as Confluent names it.
    tagsToAdd: list[PartTags] | None = None  # noqa: N815
    tagsToRemove: list[PartTags] | None = None  # noqa: N815
    metadata: dict[str, Any] | None = None
    ruleSet: dict[str, Any] | None = None  # noqa: N815
    rulesToMerge: dict[str, Any] | None = None  # noqa: N815
    rulesToRemove: list[str] | None = None  # noqa: N815


class LevelBody(msgspec.Struct, omit_defaults=True):
    """What is set for a subject or for all: null unsets it, what is left out stays as it is."""

    compatibility: str | msgspec.UnsetType | None = msgspec.UNSET
    normalize: bool | msgspec.UnsetType | None = msgspec.UNSET
    alias: str | msgspec.UnsetType | None = msgspec.UNSET
    validateFields: bool | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    compatibilityGroup: str | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    defaultMetadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    overrideMetadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    defaultRuleSet: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815
    overrideRuleSet: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET  # noqa: N815


class ModeBody(msgspec.Struct):
    mode: str | None = None


class RegistryProblem(msgspec.Struct):
    """What went wrong."""

    error_code: Annotated[int, msgspec.Meta(description="the status, or it and two more digits")]
    message: str
