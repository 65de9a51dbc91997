"""`riacho produce`: lines of stdin become records."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

import typer

from riacho.cli.output import Url, bad_usage, explain, note, pairs
from riacho.cli.records.encoding import (
    Encode,
    KeyId,
    KeySchema,
    KeySubject,
    SchemaChoice,
    ValueId,
    ValueSchema,
    ValueSubject,
    encoders,
)
from riacho.http.gateway import DEFAULT_URL
from storage.errors import Rejected, RiachoError, UnknownTopicOrPartition

if TYPE_CHECKING:
    from riacho.producer.producer import Producer
    from riacho.records import RecordMetadata

FAILURES_SHOWN_MAX: Final = 10
LINES_PER_UPDATE: Final = 500
INTERRUPTED_TIMEOUT_S: Final = 5.0


@dataclass(slots=True)
class Tally:
    """The outcome of the lines. Updated by the producer's thread, read by ours."""

    acknowledged: int = 0
    failed: int = 0
    stopped_at: int | None = None
    is_interrupted: bool = False
    is_hopeless: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)

    def settle(
        self, line: int, metadata: "RecordMetadata | None", error: RiachoError | None
    ) -> None:
        with self.lock:
            if error is None:
                self.acknowledged += 1
                return
            self.failed += 1
            # After a refused record the next one may succeed. If the gateway cannot be reached
            # or the topic was deleted, it will not.
            if not isinstance(error, Rejected) or isinstance(error, UnknownTopicOrPartition):
                self.is_hopeless = True
        if self.failed <= FAILURES_SHOWN_MAX:
            note(f"riacho: line {line}: {explain(error)}")

    @property
    def exit_code(self) -> int:
        if self.is_interrupted:
            return 130
        return 1 if self.failed or self.stopped_at is not None else 0

    def summary(self) -> str:
        text = f"{self.acknowledged} records written"
        if self.failed:
            text += f", {self.failed} failed"
        if self.stopped_at is not None:
            text += f"; stopped before line {self.stopped_at}, which was not sent"
        return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """How lines become records of one topic."""

    topic: str
    separator: bytes = b""
    is_null: bool = False
    headers: tuple[tuple[str, str], ...] = ()
    partition: int | None = None
    encode_key: Encode | None = None
    encode_value: Encode | None = None

    def split(self, line: bytes) -> tuple[bytes | None, bytes | None]:
        """Return key and value of a line; without the separator it is all value."""
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        key: bytes | None = None
        value: bytes | None = line
        if self.separator and self.separator in line:
            key, _, value = line.partition(self.separator)
        if self.is_null:
            return key or None, value or None
        return key, value

    def send(self, producer: "Producer", line: bytes, number: int, tally: Tally) -> None:
        key, value = self.split(line)
        if self.encode_key is not None and key is not None:
            key = self.encode_key(key)
        if self.encode_value is not None and value is not None:
            value = self.encode_value(value)
        producer.send(
            self.topic,
            value,
            key,
            self.headers,
            self.partition,
            callback=partial(tally.settle, number),
        )


def produce(
    topic: Annotated[str, typer.Argument(help="Name of the topic.")],
    key_separator: Annotated[
        str, typer.Option("--key-separator", "-k", help="Splits a line into key and value.")
    ] = "",
    header: Annotated[
        list[str], typer.Option("--header", "-H", help="name=value, for all; repeatable.")
    ] = [],  # noqa: B006
    partition: Annotated[
        int | None, typer.Option("--partition", "-p", min=0, help="Default: by key, or any.")
    ] = None,
    acks: Annotated[str, typer.Option(help="all, 1 or 0: how safe before it counts.")] = "all",
    no_idempotence: Annotated[
        bool,
        typer.Option(
            "--no-idempotence", help="Do not number batches: a retry may write a line twice."
        ),
    ] = False,
    null: Annotated[
        bool, typer.Option("--null", "-z", help="An empty key or value means null.")
    ] = False,
    compression: Annotated[str, typer.Option(help="lz4, zstd, gzip or none.")] = "lz4",
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Seconds until a record is given up.")
    ] = 120,
    schema: ValueSchema = "",
    schema_subject: ValueSubject = "",
    schema_id: ValueId = None,
    key_schema: KeySchema = "",
    key_schema_subject: KeySubject = "",
    key_schema_id: KeyId = None,
    url: Url = DEFAULT_URL,
) -> None:
    """Write the lines of stdin as records, and report the outcome on stderr.

    \b
    echo hello | riacho produce orders
    riacho produce orders -k : < lines.txt        # key:value
    printf 'user-7:\\n' | riacho produce users -k : -z    # a tombstone
    echo '{"amount": 3}' | riacho produce orders --schema order.avsc

    Each line is written once, however often it has to be sent. The exit code is 0 only if every
    line was acknowledged.
    """
    from riacho.admin.admin import Admin
    from riacho.producer.producer import Producer

    if acks not in ("all", "-1", "1", "0"):
        raise bad_usage(f"{acks!r} is not all, 1 or 0", "--acks")
    if compression not in ("lz4", "zstd", "gzip", "none"):
        raise bad_usage(f"{compression!r} is not lz4, zstd, gzip or none", "--compression")
    key = SchemaChoice(
        what="key", file=key_schema, subject=key_schema_subject, schema_id=key_schema_id
    )
    value = SchemaChoice(what="value", file=schema, subject=schema_subject, schema_id=schema_id)
    headers = tuple(pairs(header, "--header"))
    if key.is_given and not key_separator:
        raise bad_usage("keys need --key-separator, which splits them off", key.option)
    with Admin(url) as admin:
        admin.describe_topic(topic)  # Fails at once if the topic does not exist.
    encode_key, encode_value = encoders(url, topic, key, value)
    lines = Lines(
        topic=topic,
        separator=key_separator.encode(),
        is_null=null,
        headers=headers,
        partition=partition,
        encode_key=encode_key,
        encode_value=encode_value,
    )
    tally = Tally()
    producer = Producer(
        url,
        acks=acks,
        enable_idempotence=False if no_idempotence else None,
        compression_type=compression,  # type: ignore[arg-type]
        delivery_timeout_ms=timeout * 1000,
        # Longer than any record waits, so that the buffer has room again before `send` gives up.
        max_block_ms=timeout * 1000 + 1000,
    )
    try:
        _send_all(producer, lines, tally)
    finally:
        producer.close(INTERRUPTED_TIMEOUT_S if tally.is_interrupted else None)
    note(tally.summary())
    raise typer.Exit(tally.exit_code)


def _send_all(producer: "Producer", lines: Lines, tally: Tally) -> None:
    """Send until stdin ends, the user interrupts, or further records cannot succeed."""
    number = 0
    with _progress(tally) as show:
        try:
            for number, line in enumerate(sys.stdin.buffer, 1):
                if tally.is_hopeless:
                    tally.stopped_at = number
                    return
                if number % LINES_PER_UPDATE == 0:
                    show()
                try:
                    lines.send(producer, line, number, tally)
                except RiachoError as error:
                    tally.settle(number, None, error)
            show()
        except KeyboardInterrupt:
            tally.is_interrupted = True


@contextmanager
def _progress(tally: Tally) -> Iterator[Callable[[], None]]:
    """Show progress, only on a terminal and not while lines are typed."""
    if not sys.stderr.isatty() or sys.stdin.isatty():
        yield lambda: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    status = os.fstat(sys.stdin.fileno())
    size_bytes = status.st_size if stat.S_ISREG(status.st_mode) else None
    columns = (BarColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=size_bytes)

        def show() -> None:
            position = sys.stdin.buffer.tell() if size_bytes is not None else 0
            text = f"{tally.acknowledged} records written"
            progress.update(task, description=text, completed=position)

        yield show
