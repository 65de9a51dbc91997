"""The HTTP connectors as they are configured."""

import ipaddress
from typing import Final

from service.connect.config.keys import Config
from service.connect.connectors.api import (
    Environment,
    Plugin,
    PluginKind,
    SinkTask,
    SourceTask,
    TaskContext,
    same_tasks,
    single_task,
)
from service.connect.connectors.http import keys
from service.connect.connectors.http.addresses import refused_because
from service.connect.connectors.http.urls import parsed_url
from service.connect.data.errors import TaskFault
from service.process.without_pandas import permit

VERSION: Final = "1"
_NO_REPORTS: Final = "what servers answer is not written to topics; errors are in dead letters"
_TLS: Final = "TLS is used with https, with the authorities that this machine trusts"
_SINK_PROMISES: Final = (
    "Each record is sent at least once, in the order of its partition, with a key by which the "
    "server can recognise it: `Idempotency-Key: <topic>-<partition>-<offset>`."
)


def _url_refused(config: Config, environment: Environment, name: str) -> dict[str, str]:
    """Refuse at once what is plain from the URL; the rest when its name is resolved."""
    try:
        host = parsed_url(config.get(name, "")).host
    except TaskFault:
        return {}
    if host.lower().rstrip(".").endswith("localhost"):
        host = "127.0.0.1"
    try:
        address = str(ipaddress.ip_address(host))
    except ValueError:
        return {}
    why = refused_because(address, private_allowed=environment.private_addresses)
    return {name: f"its address {address} {why}"} if why else {}


def _check_sink(config: Config, environment: Environment) -> dict[str, str]:
    return {
        **keys.unsound_requests(config),
        **_url_refused(config, environment, "http.api.url"),
    }


def _check_aiven(config: Config, environment: Environment) -> dict[str, str]:
    problems = _url_refused(config, environment, "http.url")
    is_static = config.get("http.authorization.type", "").lower() == "static"
    if is_static and not config.get("http.headers.authorization"):
        problems["http.headers.authorization"] = "is required with http.authorization.type=static"
    return problems


def _check_source(config: Config, environment: Environment) -> dict[str, str]:
    return {
        **keys.unsound_requests(config),
        **_url_refused(config, environment, "http.request.url"),
    }


def _make_sink(context: TaskContext) -> SinkTask:
    permit("httpx")
    from service.connect.connectors.http.sink import HttpSink

    return HttpSink(context, keys.sink_settings(context.config))


def _make_aiven(context: TaskContext) -> SinkTask:
    permit("httpx")
    from service.connect.connectors.http.sink import HttpSink

    return HttpSink(context, keys.aiven_settings(context.config))


def _make_source(context: TaskContext) -> SourceTask:
    permit("httpx")
    from service.connect.connectors.http.source import HttpSource

    return HttpSource(context, keys.source_settings(context.config))


PLUGINS: Final = (
    Plugin(
        kind=PluginKind.SINK,
        class_name="HttpSink",
        aliases=("io.confluent.connect.http.HttpSinkConnector",),
        version=VERSION,
        about="Records to an HTTP server, one or several a request.",
        keys=keys.SINK_KEYS,
        ignored={
            "ssl.enabled": _TLS,
            "reporter.bootstrap.servers": _NO_REPORTS,
            "reporter.error.topic.name": _NO_REPORTS,
            "reporter.error.topic.replication.factor": _NO_REPORTS,
            "reporter.result.topic.name": _NO_REPORTS,
            "reporter.result.topic.replication.factor": _NO_REPORTS,
            "confluent.topic.bootstrap.servers": "no license is needed",
            "confluent.topic.replication.factor": "no license is needed",
        },
        check=_check_sink,
        tasks=same_tasks,
        make=_make_sink,
        promises=_SINK_PROMISES,
    ),
    Plugin(
        kind=PluginKind.SINK,
        class_name="AivenHttpSink",
        aliases=("io.aiven.kafka.connect.http.HttpSinkConnector",),
        version=VERSION,
        about="The same sink, with the keys and the defaults of Aiven's.",
        keys=keys.AIVEN_KEYS,
        ignored={
            "kafka.retry.backoff.ms": "`errors.retry.delay.max.ms` says how long tasks wait",
        },
        check=_check_aiven,
        tasks=same_tasks,
        make=_make_aiven,
        promises=_SINK_PROMISES,
    ),
    Plugin(
        kind=PluginKind.SOURCE,
        class_name="HttpSource",
        version=VERSION,
        about="Records of a server that is asked now and then.",
        keys=keys.SOURCE_KEYS,
        check=_check_source,
        tasks=single_task,
        make=_make_source,
        promises=(
            "Each record of a reply is in the log once, if their offsets do not decrease and the "
            "server gives all that follow an offset."
        ),
    ),
)
