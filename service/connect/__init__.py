"""Connect without workers: connectors are items, tasks are leased, any process with time runs them.

data           records, schemas and values as connectors, converters and transforms know them; pure
converters     bytes of the log <-> data
transforms     Kafka's single message transforms and predicates; pure
config         the keys of connectors, their validation, references to secrets
connectors     the contract of sources and sinks, and every connector
access         the log, its topics and its registry as the principal of a connector may use them
tasks          items, the fence of a run, the loops of sources and sinks, errors, dead letters
running        planning, leases, the runner, and the process that it is beside a gateway
dead_letters   what is in a dead letter topic, and sending it again
rest           the calls of Kafka Connect's REST API
"""
