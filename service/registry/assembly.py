"""The parts of the registry, connected."""

from service.log.gateway import Gateway
from service.registry.changing import Changes
from service.registry.registering import Registrar
from service.registry.rules import RuleCalls
from service.registry.schemas import SchemaCalls
from service.registry.subjects import SubjectCalls


class Registry:
    """All calls of the registry on one gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self.reader = gateway.schemas
        self.registrar = Registrar(self.reader)
        self.changes = Changes(self.reader)
        self.subjects = SubjectCalls(gateway, self.reader, self.registrar, self.changes)
        self.schemas = SchemaCalls(self.reader, self.changes)
        self.rules = RuleCalls(gateway, self.reader, self.registrar, self.changes)
