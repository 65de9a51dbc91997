"""Connect without workers: connectors are items, tasks are leased, any process with time runs them.

data           records, schemas and values as connectors, converters and transforms know them; pure
converters     bytes of the log <-> data
transforms     Kafka's single message transforms and predicates; pure
config         the keys of connectors, their validation, references to secrets
connectors     the contract of sources and sinks, and every connector
tasks          items, leases, the loops of sources and sinks, errors and their dead letters
dead_letters   what is in a dead letter topic, and sending it again
rest           the calls of Kafka Connect's REST API
"""
