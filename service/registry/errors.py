"""Errors of the registry, as Confluent's clients know them: a status and a code of five digits.

They are no `RiachoError`: these calls are another protocol over HTTP, whose errors are fixed.
"""

from http import HTTPStatus
from typing import Final


class RegistryError(Exception):
    """Refuses a call of the registry."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def status(self) -> int:
        return self.code if self.code < 1000 else self.code // 100


INCOMPATIBLE: Final = int(HTTPStatus.CONFLICT)
"""Newer servers say 40901; clients look for the older code."""

INVALID_SCHEMA: Final = 42201
INVALID_MODE: Final = 42204
FORBIDDEN: Final = 40301
UNAUTHENTICATED: Final = 40101
STORE: Final = 50001
TIMEOUT: Final = 50002


def no_subject(name: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{name}' not found.")


def no_version(version: object) -> RegistryError:
    return RegistryError(40402, f"Version {version} not found.")


def no_schema() -> RegistryError:
    return RegistryError(40403, "Schema not found")


def no_schema_id(schema_id: object) -> RegistryError:
    return RegistryError(40403, f"Schema {schema_id} not found")


def subject_deleted(name: str) -> RegistryError:
    return RegistryError(
        40404,
        f"Subject '{name}' was soft deleted. Set permanent=true to delete permanently",
    )


def subject_not_deleted(name: str) -> RegistryError:
    return RegistryError(
        40405,
        f"Subject '{name}' was not deleted first before being permanently deleted",
    )


def version_deleted(name: str, version: int) -> RegistryError:
    return RegistryError(
        40406,
        f"Subject '{name}' Version {version} was soft deleted."
        " Set permanent=true to delete permanently",
    )


def version_not_deleted(name: str, version: int) -> RegistryError:
    return RegistryError(
        40407,
        f"Subject '{name}' Version {version} was not deleted first before being permanently"
        " deleted",
    )


def no_level(name: str) -> RegistryError:
    return RegistryError(
        40408, f"Subject '{name}' does not have subject-level compatibility configured"
    )


def no_mode(name: str) -> RegistryError:
    return RegistryError(40409, f"Subject '{name}' does not have subject-level mode configured")


def invalid_schema(why: str) -> RegistryError:
    return RegistryError(INVALID_SCHEMA, f"Invalid schema: {why}")


def invalid_version(text: str) -> RegistryError:
    return RegistryError(
        42202,
        f"The specified version '{text}' is not a valid version id. Allowed values are between"
        ' [1, 2^31-1] and the string "latest"',
    )


def invalid_level(text: object) -> RegistryError:
    return RegistryError(
        42203,
        f"Invalid compatibility level {text!r}; levels are NONE, BACKWARD, FORWARD, FULL,"
        " BACKWARD_TRANSITIVE, FORWARD_TRANSITIVE and FULL_TRANSITIVE",
    )


def invalid_mode(text: object) -> RegistryError:
    return RegistryError(
        INVALID_MODE,
        f"Invalid mode {text!r}; modes are READWRITE, READONLY, READONLY_OVERRIDE and IMPORT",
    )


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


def referenced(name: str, version: int) -> RegistryError:
    return RegistryError(
        42206, f"One or more references exist to the schema {{subject={name},version={version}}}."
    )


def other_id(why: str) -> RegistryError:
    return RegistryError(42207, why)


def invalid_subject(name: str) -> RegistryError:
    return RegistryError(42208, f"The specified subject '{name:.300}' is not a valid subject.")


def too_large(why: str) -> RegistryError:
    return RegistryError(42209, why)


def invalid_rule_set(why: str) -> RegistryError:
    return RegistryError(42210, f"Invalid rule set: {why}")


def context_not_empty(name: str) -> RegistryError:
    return RegistryError(42211, f"The context '{name}' is not empty.")
