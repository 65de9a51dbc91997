"""`riacho sql`: SQL over topics, on a Spark session in this process."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from riacho.cli.output import Url, bad_usage, note
from riacho.cli.records.formats import Origin, begin_offset
from riacho.cli.sql.options import (
    Mode,
    Running,
    Words,
    check_bounded,
    origin_of,
    running_of,
    schemas_of,
)
from riacho.cli.sql.rows import Format, write
from riacho.http.gateway import DEFAULT_URL

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from riacho.admin.admin import Admin, PartitionInfo
    from riacho.spark.sql.sql import ReadSpan, TopicViews

TABLE_ROWS: Final = 1000
"""A table is printed after its last row has arrived, so it has a limit by default."""


def sql(
    query: Annotated[str, typer.Argument(help="A SELECT of Spark SQL; topics are its tables.")],
    from_: Annotated[
        str,
        typer.Option(
            "--from",
            help="beginning, end, N, -N (the last N of each partition), @TIME (ms since 1970 or"
            " ISO 8601), or -1h (30s, 5m, 2d) ago.",
        ),
    ] = "beginning",
    to: Annotated[
        str, typer.Option("--to", help="Where to end, in the same words; this one is not read.")
    ] = "end",
    schema: Annotated[
        list[str] | None,
        typer.Option(
            help="Columns of the JSON values, instead of what a sample of 1,000 records shows:"
            " 'TOPIC=id BIGINT, name STRING', several times, or without TOPIC= for all."
        ),
    ] = None,
    output: Annotated[
        Format, typer.Option("--output", "-o", help="How to print the result.")
    ] = Format.TABLE,
    limit: Annotated[
        int | None,
        typer.Option("--limit", "-n", min=1, help="Most rows; of a table 1,000 by default."),
    ] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous", "-c", help="Go on, and write what comes to --into.")
    ] = False,
    into: Annotated[
        str | None, typer.Option(metavar="TOPIC", help="Where results of --continuous go.")
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of a query that goes on; default: made of --into and the query."),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Where it is remembered how far the query is; default: a directory for its name"
            " under ~/.local/state/riacho/queries.",
        ),
    ] = None,
    mode: Annotated[
        Mode,
        typer.Option(
            help="append: rows that are final; update: rows that changed; complete: all, each time."
        ),
    ] = Mode.APPEND,
    watermark: Annotated[
        str | None,
        typer.Option(
            help="How late records may be, '10 minutes', by their timestamp; or by a column of"
            " theirs, 'created=10 minutes'."
        ),
    ] = None,
    every: Annotated[
        str | None, typer.Option(help="Write every 30s, 5m or 1h; default: as fast as possible.")
    ] = None,
    available_now: Annotated[
        bool, typer.Option("--available-now", "--once", help="Stop when all there is was read.")
    ] = False,
    master: Annotated[
        str, typer.Option(help="Which Spark, unless it was submitted to one.")
    ] = "local[*]",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No notes on stderr.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Run a query over topics, once or continuously with results written to a topic.

    Fields of JSON values are columns; other topics have key and value as text. Every topic also
    has _key, _partition, _offset, _timestamp and _headers (with one more underscore if a value
    has a field of that name). Names with dots or dashes are written in backticks.

    \b
    riacho sql 'SELECT customer, sum(amount) FROM orders GROUP BY customer'
    riacho sql 'SELECT * FROM `web-clicks` WHERE _key = "ana"' --from -1h -o ndjson
    riacho sql 'SELECT count(*) FROM orders' --from @2026-11-16 --to @2026-11-17
    riacho sql 'SELECT * FROM orders' --schema 'orders=id BIGINT, amount DECIMAL(9,2)' -n 10

    A continuous query writes the column _key (or key) as the key, _timestamp and _headers as
    those of the record, all others but _partition and _offset as a JSON value, each result exactly
    once. Restarted with the same --name or --checkpoint, it continues where it stopped. Ctrl-C
    stops it.

    \b
    riacho sql -c --into large 'SELECT * FROM orders WHERE amount > 100'
    riacho sql -c --into per-minute --watermark '1 minute' \\
      'SELECT window(_timestamp, "1 minute").start AS minute, customer AS key, count(*) AS orders
       FROM orders GROUP BY window(_timestamp, "1 minute"), customer'
    riacho sql -c --into totals --mode update --once \\
      'SELECT customer AS key, sum(amount) AS total FROM orders GROUP BY customer'

    Exit codes: 0 done, 1 failed or no such topic, 2 the query or an option is wrong.
    """
    span = Words(origin_of(from_, "--from"), origin_of(to, "--to"))
    schemas = schemas_of(schema or [])
    running = None
    if continuous:
        if to != "end":
            raise bad_usage("a query that goes on has no end; leave --to out", "--to")
        running = running_of(query, into, name, checkpoint, mode, available_now, every, watermark)
    else:
        check_bounded(into, name, checkpoint, mode, available_now, every, watermark)
    with _topics(url, span, schemas, running, master, quiet) as topics:
        if running is None:
            _answer(topics, query, output, limit, quiet)
        else:
            _keep_answering(topics, query, running, quiet)


@contextmanager
def _topics(
    url: str,
    words: Words,
    schemas: Mapping[str, str],
    running: Running | None,
    master: str,
    quiet: bool,
) -> "Iterator[TopicViews]":
    from riacho.admin.admin import Admin

    with Admin(url) as admin:
        # Errors that can be found without Spark are reported before it starts, which takes long.
        admin.list_topics()
        if running is not None:
            from riacho.spark.sql.sql import check_topic

            check_topic(admin, running.into)
        if not quiet:
            note("starting Spark, which takes some 10 to 20 seconds …")
        from service.jobs.runners.spark_session import session

        with session(master, name="riacho sql", config=_config(), computes=True) as spark:
            from riacho.spark.sql.sql import TopicViews

            _hush()
            topics = TopicViews(
                spark=spark,
                admin=admin,
                url=url,
                span=_span(words, goes_on=running is not None),
                schemas=schemas,
                watermark=None if running is None else running.watermark,
            )
            try:
                yield topics
            finally:
                topics.forget()


def _config() -> dict[str, str]:
    cores = os.cpu_count() or 2
    return {
        # Spark's 200 are for a cluster; here they would only take time.
        "spark.sql.shuffle.partitions": str(min(cores, 16)),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.stateStore.maintenanceInterval": "60s",
    }


def _hush() -> None:
    """Keep Spark from printing an error that we are about to explain."""
    import logging

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _span(words: Words, *, goes_on: bool) -> "ReadSpan":
    from riacho.spark.sql.sql import ReadSpan

    def start(_: "Admin", topic: str, infos: "list[PartitionInfo]") -> dict[str, str]:
        found = _place("starting", words.start, topic, infos)
        return {**found, "startingOffsetsByTimestampStrategy": "latest"}

    def end(_: "Admin", topic: str, infos: "list[PartitionInfo]") -> dict[str, str]:
        return _place("ending", words.end, topic, infos)

    return ReadSpan(start=start, end=None if goes_on else end)


def _place(prefix: str, origin: Origin, topic: str, infos: "list[PartitionInfo]") -> dict[str, str]:
    """Return where to begin or to end as an option of the source."""
    import json

    if origin.kind == "time":
        return {f"{prefix}Timestamp": str(origin.number)}
    offsets = {}
    for info in infos:
        offset = begin_offset(origin, info.log_start_offset, info.high_watermark)
        assert offset is not None, origin
        # Records before the log start are deleted, and those after its end not yet written.
        bounded = min(max(offset, info.log_start_offset), info.high_watermark)
        offsets[str(info.partition)] = bounded
    return {f"{prefix}Offsets": json.dumps({topic: offsets})}


def _answer(
    topics: "TopicViews", query: str, output: Format, limit: int | None, quiet: bool
) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    from riacho.errors import new_error
    from riacho.spark.sql.errors import BadQuery, explained
    from riacho.spark.sql.stream import QueryFailed

    try:
        result = topics.query(query)
        names = result.columns
        most = limit or (TABLE_ROWS if output is Format.TABLE else None)
        rows = _rows(result, most, asks_more=limit is None)
        if most is not None and len(rows) > most:
            rows = rows[:most]
            if not quiet:
                note(f"these are the first {most} rows; --limit says how many")
        write(names, rows, output)
    except BadQuery as error:
        raise _wrong(error) from None
    except (PySparkException, Py4JJavaError) as error:
        raise new_error(QueryFailed, explained(error)) from None


def _rows(result: "DataFrame", most: int | None, *, asks_more: bool) -> Any:
    """Return the rows: a list if there is a limit, else one after the other."""
    if most is not None:
        return result.limit(most + asks_more).collect()
    return result.toLocalIterator()


def _keep_answering(topics: "TopicViews", query: str, running: Running, quiet: bool) -> None:
    from riacho.spark.sql import stream as sql_stream
    from riacho.spark.sql.errors import BadQuery

    wanted = sql_stream.Continuous(
        url=topics.url,
        topic=running.into,
        checkpoint=running.checkpoint,
        name=running.name,
        mode=running.mode.value,
        available_now=running.available_now,
        every=running.every,
    )

    def report(batch_id: int, rows: int) -> None:
        if not quiet:
            note(f"batch {batch_id}: {rows} records read")

    with _stopped_by_signals() as stop:
        try:
            started = sql_stream.start(topics.query(query), wanted)
        except BadQuery as error:
            raise _wrong(error) from None
        if not quiet:
            note(f"query {running.name!r} runs; it is remembered in {running.checkpoint}")
        sql_stream.follow(started, stop, report)
        if not quiet:
            note("stopped" if stop.is_set() else "done")


@contextmanager
def _stopped_by_signals() -> Iterator[threading.Event]:
    """Yield an event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, lambda *_: stop.set()) for number in numbers]
    try:
        yield stop
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


def _wrong(error: Exception) -> typer.Exit:
    """Print why the query is wrong, and return the exit of the command."""
    note(f"riacho: {error}")
    sys.stdout.flush()
    return typer.Exit(2)
