"""What the handlers of the Kafka door work with: the same objects that serve HTTP."""

from dataclasses import dataclass

from service.controller.live_gateways import LiveGateways
from service.groups.coordinator import Coordinator
from service.groups.offsets import Offsets
from service.http.metrics import Metrics
from service.kafka.brokers.brokers import Brokers
from service.kafka.listener.address import BrokerAddress
from service.log.gateway import Gateway
from service.security.assembly import Security
from service.transactions.fences import Fences
from service.transactions.ids import ProducerIds
from service.transactions.items import TransactionItems
from service.transactions.staging import Staging
from service.transactions.transactions import Transactions


@dataclass(frozen=True, kw_only=True)
class Parts:
    """The parts of one gateway, as the assembly has connected them."""

    gateway: Gateway
    registry: LiveGateways
    metrics: Metrics
    coordinator: Coordinator
    offsets: Offsets
    producer_ids: ProducerIds
    transaction_items: TransactionItems
    transactions: Transactions
    fences: Fences
    staging: Staging
    security: Security | None
    """None: every caller may do everything."""
    address: BrokerAddress
    """What this gateway advertises: of its own, also where workers share a port."""
    brokers: Brokers
    """The connection's owner lets it `join` with `address` before the first request, then beats
    once (`registry.beat`); and lets it `leave` when it drains."""
