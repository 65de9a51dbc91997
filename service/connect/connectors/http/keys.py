"""The keys of the HTTP connectors, and what a configuration says by them.

The sink has Confluent's keys; under Aiven's class name it has Aiven's, which differ in names and in
defaults. What the source has is named alike.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from service.connect.config.keys import Config, Importance, Key, KeyType, between
from service.connect.config.values import Values
from service.connect.connectors.http.bodies import BodyForm
from service.connect.connectors.http.pointers import pointer_of
from service.connect.connectors.http.requests import (
    RequestSettings,
    Retries,
    authorization,
    headers_of,
    status_codes,
)
from service.connect.connectors.http.settings import HttpSinkSettings, HttpSourceSettings
from service.connect.connectors.http.urls import parsed_url
from service.connect.data.errors import TaskFault

BATCH_RECORDS_MAX: Final = 10_000
DAY_MS: Final = 86_400_000
RETRY_CODES: Final = "408,425,429,500-"
_REFERENCE: Final = re.compile(r"\$\{[a-z][a-z-]*:")
_BACKSLASHED: Final = {"\\n": "\n", "\\t": "\t", "\\r": "\r"}


def _refused_by(parse: Callable[[str], object]) -> Callable[[str, Any], str | None]:
    def check(_: str, value: Any) -> str | None:
        try:
            parse(value or "")
        except (ValueError, TaskFault) as error:
            return str(error)
        return None

    return check


def _url(text: str) -> None:
    if _REFERENCE.search(text):
        # It is checked again once it is known what the reference stands for.
        return
    at = parsed_url(text)
    if "$" in at.host or "%7B" in at.netloc.decode().upper():
        raise ValueError("the host cannot depend on a record")


def _not_empty(text: str) -> None:
    if not text.strip():
        raise ValueError("must not be empty")


def _key(name: str, kind: KeyType, default: Any, about: str, **more: Any) -> Key:
    return Key(name=name, type=kind, default=default, about=about, **more)


_S, _I, _B, _P = KeyType.STRING, KeyType.INT, KeyType.BOOLEAN, KeyType.PASSWORD

_REQUESTS: Final = (
    _key(
        "headers",
        _S,
        "",
        "Headers of every request, as `Name: value`, separated by `header.separator`.",
        importance=Importance.HIGH,
    ),
    _key("header.separator", _S, "|", "What separates `headers`."),
    _key(
        "auth.type",
        _S,
        "none",
        "How the connector says who it is: `basic` with `connection.user` and "
        "`connection.password`, `bearer` with `bearer.token`.",
        choices=("none", "basic", "bearer"),
        importance=Importance.HIGH,
        dependents=("connection.user", "connection.password", "bearer.token"),
    ),
    _key("connection.user", _S, None, "The user of `auth.type=basic`."),
    _key("connection.password", _P, None, "The password of `auth.type=basic`: a reference."),
    _key("bearer.token", _P, None, "The token of `auth.type=bearer`: a reference."),
    _key(
        "http.connect.timeout.ms",
        _I,
        30_000,
        "How long a connection may take to be made.",
        check=between(1, 600_000),
    ),
    _key(
        "http.request.timeout.ms",
        _I,
        30_000,
        "How long a whole request may take once there is a connection.",
        check=between(1, 600_000),
    ),
    _key(
        "max.retries",
        _I,
        10,
        "How often a request is repeated that got no reply, or one to be retried. A sink repeats "
        "it for at most a minute, or `errors.retry.timeout`. Then the task fails.",
        check=between(0, 1000),
    ),
    _key(
        "retry.backoff.ms",
        _I,
        3000,
        "How long to wait before the first repetition; each later wait is twice as long, at most a "
        "minute, unless the server says how long by `Retry-After`.",
        check=between(1, 60_000),
    ),
    _key(
        "retry.on.status.codes",
        _S,
        RETRY_CODES,
        "The statuses that are retried: codes, ranges, `500-` is all from 500.",
        check=_refused_by(status_codes),
    ),
)

SINK_KEYS: Final = (
    Key(
        name="http.api.url",
        type=_S,
        importance=Importance.HIGH,
        about="Where records are sent to. Its path and query may have `${topic}`, `${partition}`, "
        "`${offset}` and `${key}`.",
        check=_refused_by(_url),
    ),
    _key(
        "request.method",
        _S,
        "POST",
        "The method of requests.",
        choices=("POST", "PUT", "PATCH"),
        importance=Importance.HIGH,
    ),
    _key(
        "request.body.format",
        _S,
        "string",
        "`string`: text and bytes as they are, and JSON of what has fields; `json`: JSON of all.",
        choices=("string", "json"),
    ),
    _key(
        "batch.max.size",
        _I,
        1,
        "The most records in a request.",
        check=between(1, BATCH_RECORDS_MAX),
        importance=Importance.HIGH,
    ),
    _key("batch.json.as.array", _B, False, "Whether a body is a JSON array of its records."),
    _key("batch.prefix", _S, "", "What a body begins with, if `batch.max.size` is more than 1."),
    _key("batch.suffix", _S, "", "What it ends with."),
    _key("batch.separator", _S, ",", r"What is between its records; `\n` is a line end."),
    _key(
        "behavior.on.null.values",
        _S,
        "ignore",
        "What is done with null: `delete` sends DELETE, `fail` gives the record up.",
        choices=("ignore", "log", "delete", "fail"),
    ),
    _key(
        "behavior.on.error",
        _S,
        "fail",
        "What is done with a record that the server refuses: `fail` gives it up as "
        "`errors.tolerance` says; `log` and `ignore` go on without it.",
        choices=("fail", "log", "ignore"),
    ),
    *_REQUESTS,
)

AIVEN_KEYS: Final = (
    Key(
        name="http.url",
        type=_S,
        importance=Importance.HIGH,
        about="Where records are sent to, by POST.",
        check=_refused_by(_url),
    ),
    _key(
        "http.authorization.type",
        _S,
        "none",
        "`static`: `http.headers.authorization` is sent.",
        choices=("none", "static"),
        importance=Importance.HIGH,
        dependents=("http.headers.authorization",),
    ),
    _key("http.headers.authorization", _P, None, "The header `Authorization`: a reference."),
    _key("http.headers.content.type", _S, None, "The header `Content-Type`."),
    _key(
        "http.headers.additional",
        _S,
        "",
        "More headers, as `name:value`, separated by commas.",
        check=_refused_by(lambda text: headers_of(text, ",")),
        importance=Importance.LOW,
    ),
    _key(
        "batching.enabled",
        _B,
        False,
        "Whether a request may have several records.",
        importance=Importance.HIGH,
    ),
    _key(
        "batch.max.size",
        _I,
        500,
        "The most records in a request, if batching is enabled.",
        check=between(1, BATCH_RECORDS_MAX),
    ),
    _key("batch.prefix", _S, "", "What a body begins with."),
    _key("batch.suffix", _S, "\n", "What a body ends with."),
    _key("batch.separator", _S, "\n", "What is between records."),
    _key(
        "max.retries",
        _I,
        1,
        "How often a request is repeated.",
        check=between(0, 1000),
    ),
    _key(
        "retry.backoff.ms",
        _I,
        3000,
        "How long to wait before the first repetition.",
        check=between(1, 60_000),
    ),
    _key(
        "http.timeout",
        _I,
        30,
        "How many seconds a request may take.",
        check=between(1, 600),
        importance=Importance.LOW,
    ),
)

SOURCE_KEYS: Final = (
    Key(
        name="http.request.url",
        type=_S,
        importance=Importance.HIGH,
        about="What is asked. Its path and query may have `${offset}`: that of the last record.",
        check=_refused_by(_url),
    ),
    Key(
        name="kafka.topic",
        type=_S,
        importance=Importance.HIGH,
        about="The topic that gets the records.",
        check=_refused_by(_not_empty),
    ),
    _key(
        "http.request.method",
        _S,
        "GET",
        "The method of requests.",
        choices=("GET", "POST"),
    ),
    _key("http.request.body", _S, "", "The body of requests. It may have `${offset}`."),
    _key(
        "http.timer.interval.millis",
        KeyType.LONG,
        60_000,
        "How long to wait after a reply without new records.",
        check=between(100, DAY_MS),
        importance=Importance.HIGH,
    ),
    _key(
        "http.response.list.pointer",
        _S,
        "",
        "Where in a reply its records are, as a JSON pointer; empty: the reply is the array, or "
        "the one record.",
        check=_refused_by(pointer_of),
        importance=Importance.HIGH,
    ),
    _key(
        "http.response.record.pointer",
        _S,
        "",
        "Where in a record the value is; empty: all of it.",
        check=_refused_by(pointer_of),
    ),
    _key(
        "http.response.record.key.pointer",
        _S,
        None,
        "Where in a record the key is; unset: there is none.",
        check=_refused_by(pointer_of),
    ),
    _key(
        "http.response.record.offset.pointer",
        _S,
        None,
        "Where in a record its offset is, which must not decrease; unset: a reply that differs "
        "from the one before is read whole.",
        check=_refused_by(pointer_of),
        importance=Importance.HIGH,
    ),
    _key("http.offset.initial", _S, "", "What `${offset}` is before the first record."),
    *_REQUESTS,
)


def unsound_requests(config: Config) -> Mapping[str, str]:
    """Return what is wrong with keys that belong together, by key."""
    problems: dict[str, str] = {}
    try:
        headers_of(config.get("headers", ""), config.get("header.separator", "|"))
    except ValueError as error:
        problems["headers"] = str(error)
    kind = config.get("auth.type", "none").lower()
    needed = {"basic": ("connection.user", "connection.password"), "bearer": ("bearer.token",)}
    for name in needed.get(kind, ()):
        if not config.get(name):
            problems[name] = f"is required with auth.type={kind}"
    return problems


def _requests(values: Values, method: str, url: str) -> RequestSettings:
    headers = headers_of(values["headers"], values["header.separator"])
    said = authorization(
        values["auth.type"],
        values["connection.user"],
        values["connection.password"],
        values["bearer.token"],
    )
    return RequestSettings(
        method=method,
        url=url,
        headers={**headers, **_authorized(said)},
        connect_s=values["http.connect.timeout.ms"] / 1000,
        request_s=values["http.request.timeout.ms"] / 1000,
        retries=Retries(values["max.retries"], values["retry.backoff.ms"] / 1000),
        retry_on=status_codes(values["retry.on.status.codes"]),
    )


def _authorized(said: str) -> dict[str, str]:
    if not said.isascii() or any(ord(letter) < 32 for letter in said):
        raise TaskFault("the secret has characters that a header cannot have")
    return {"Authorization": said} if said else {}


def sink_settings(config: Config) -> HttpSinkSettings:
    values = Values(SINK_KEYS, config)
    as_array: bool = values["batch.json.as.array"]
    return HttpSinkSettings(
        requests=_requests(values, values["request.method"].upper(), values["http.api.url"]),
        form=BodyForm(
            as_json=values["request.body.format"].lower() == "json",
            as_array=as_array,
            prefix=_unescaped(values, "batch.prefix"),
            separator=_unescaped(values, "batch.separator"),
            suffix=_unescaped(values, "batch.suffix"),
        ),
        batch_max=values["batch.max.size"],
        is_batch=as_array or values["batch.max.size"] > 1,
        on_null=values["behavior.on.null.values"].lower(),
        on_error=values["behavior.on.error"].lower(),
    )


def aiven_settings(config: Config) -> HttpSinkSettings:
    values = Values(AIVEN_KEYS, config)
    headers = headers_of(values["http.headers.additional"], ",")
    if values["http.headers.content.type"]:
        headers["Content-Type"] = values["http.headers.content.type"]
    is_static = values["http.authorization.type"].lower() == "static"
    said = authorization("static", None, None, values["http.headers.authorization"])
    batching: bool = values["batching.enabled"]
    return HttpSinkSettings(
        requests=RequestSettings(
            method="POST",
            url=values["http.url"],
            headers={**headers, **(_authorized(said) if is_static else {})},
            connect_s=values["http.timeout"],
            request_s=values["http.timeout"],
            retries=Retries(values["max.retries"], values["retry.backoff.ms"] / 1000),
        ),
        form=BodyForm(
            as_json=False,
            prefix=_unescaped(values, "batch.prefix"),
            separator=_unescaped(values, "batch.separator"),
            suffix=_unescaped(values, "batch.suffix"),
        ),
        batch_max=values["batch.max.size"] if batching else 1,
        is_batch=batching,
        on_null="fail",
        on_error="fail",
    )


def source_settings(config: Config) -> HttpSourceSettings:
    values = Values(SOURCE_KEYS, config)
    return HttpSourceSettings(
        requests=_requests(
            values, values["http.request.method"].upper(), values["http.request.url"]
        ),
        body=values["http.request.body"],
        topic=values["kafka.topic"],
        interval_s=values["http.timer.interval.millis"] / 1000,
        list_pointer=pointer_of(values["http.response.list.pointer"]),
        value_pointer=pointer_of(values["http.response.record.pointer"]),
        key_pointer=_optional(values["http.response.record.key.pointer"]),
        offset_pointer=_optional(values["http.response.record.offset.pointer"]),
        offset_initial=values["http.offset.initial"],
    )


def _optional(text: str | None) -> Sequence[str] | None:
    return None if text is None else pointer_of(text)


def _unescaped(values: Values, name: str) -> bytes:
    # As it was written: blanks and line ends at its ends are meant.
    text: str = values.raw.get(name, values[name])
    for written, meant in _BACKSLASHED.items():
        text = text.replace(written, meant)
    return text.encode()
