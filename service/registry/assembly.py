"""The parts of the registry, connected."""

from service.log.gateway import Gateway
from service.registry.changing import Changes
from service.registry.edge.encoding import Encoding
from service.registry.edge.lookups import SchemaLookups
from service.registry.edge.readable import ReadableSchemas
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
        readable = ReadableSchemas(self.reader)
        self.schemas = SchemaCalls(self.reader, readable, self.changes)
        codecs = gateway.schema_codecs
        self.lookups = SchemaLookups(self.reader, readable, codecs)
        self.encoding = Encoding(self.reader, readable, codecs, self.registrar)
        self.rules = RuleCalls(gateway, self.reader, self.registrar, self.changes)
