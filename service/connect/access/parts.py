"""What the tasks of a process work with, whether it serves requests or not."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from service.connect.connectors.api import Environment
from service.groups.offsets import Offsets
from service.log.gateway import Gateway
from service.process.references.references import SecretReferences

if TYPE_CHECKING:
    from service.security.assembly import Security


@dataclass(frozen=True, kw_only=True)
class Parts:
    gateway: Gateway
    offsets: Offsets
    environment: Environment
    references: SecretReferences
    security: "Security | None" = None
    """None: every connector may do everything."""
