"""Errors of converters, transforms and connectors, by what the task does about them.

    ConnectFault
      DataFault          the record cannot be processed: tolerated, or the end of the task
      RetriableFault     the same may succeed later: the task repeats the call, then gives up
      TaskFault          the task cannot go on: it fails, and restarts itself with back-off
    ConfigFault          the configuration is wrong: it must be changed

`java_name` is the exception that Kafka Connect would have raised; dead letters and traces name it.
"""

from collections.abc import Mapping
from typing import ClassVar


class ConnectFault(Exception):
    java_name: ClassVar[str] = "org.apache.kafka.connect.errors.ConnectException"

    raised_by: str = ""
    """The class of the transform or predicate that raised it, with Java's name."""


class DataFault(ConnectFault):
    java_name = "org.apache.kafka.connect.errors.DataException"


class RetriableFault(ConnectFault):
    java_name = "org.apache.kafka.connect.errors.RetriableException"


class TaskFault(ConnectFault):
    """The task fails, with this text as its trace."""


class ConfigFault(Exception):
    """`problems` maps keys of the configuration to what is wrong with their values."""

    java_name: ClassVar[str] = "org.apache.kafka.common.config.ConfigException"

    def __init__(self, problems: Mapping[str, str]) -> None:
        super().__init__("; ".join(f"{key}: {text}" for key, text in problems.items()))
        self.problems = dict(problems)
