"""`riacho serve`: a gateway in this process."""

# ruff: noqa: D301 (\b is a backspace: with it, help keeps the lines of examples apart.)

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from riacho.cli.output import bad_usage, note
from storage.errors import InvalidConfig

if TYPE_CHECKING:
    from service.security.tls.files import TlsFiles

T = TypeVar("T")

KEY_PASSWORD: Final = "RIACHO_TLS_KEY_PASSWORD"  # noqa: S105 - The name of a variable.
"""No option: other users of the machine can see the arguments of a process."""

KAFKA_ADVERTISED: Final = "RIACHO_KAFKA_ADVERTISED"
"""No option, as for `RIACHO_ADVERTISED_URL`: it belongs to the machine, not to the command."""


def serve(
    host: Annotated[
        str, typer.Option(envvar="RIACHO_HOST", help="Address to listen on.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(envvar="RIACHO_PORT", min=0, max=65535, help="Port; 0: a free one.")
    ] = 8080,
    data: Annotated[
        Path, typer.Option(envvar="RIACHO_DATA", help="Where everything is kept by default.")
    ] = Path("riacho-data"),
    zones: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_ZONES",
            help="a,b,c (directories under --data) or a=s3://bucket/prefix,b=file:///dir",
        ),
    ] = "",
    metadata: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_METADATA",
            help="sqlite:///file, dynamodb://table or memory://; default: SQLite under --data",
        ),
    ] = "",
    workers: Annotated[
        int, typer.Option(envvar="RIACHO_WORKERS", min=1, help="Processes that serve.")
    ] = 1,
    reload: Annotated[
        bool, typer.Option("--reload", help="Restart when the code changes.")
    ] = False,
    maintain_every: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_MAINTAIN_EVERY",
            help="Run retention, compaction and sweep this often: 30s, 5m, 1h; default: never.",
        ),
    ] = "",
    kafka: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_KAFKA",
            help="HOST:PORT where Kafka's clients connect, their bootstrap.servers; port 0: a free"
            " one. Default: 127.0.0.1:9092 if it is free. RIACHO_KAFKA_ADVERTISED is what they"
            " are told to connect to, if that differs: behind a forwarded port, in a container.",
        ),
    ] = "",
    no_kafka: Annotated[
        bool, typer.Option("--no-kafka", help="Serve HTTP alone, and no Kafka clients.")
    ] = False,
    log_level: Annotated[
        str, typer.Option(envvar="RIACHO_LOG_LEVEL", help="debug, info, warning or error.")
    ] = "info",
    security: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_SECURITY",
            help="on or off: whether callers need credentials. Default: off on loopback, else on.",
        ),
    ] = "",
    insecure: Annotated[
        bool,
        typer.Option(
            "--insecure", envvar="RIACHO_INSECURE", help="Insist on off where others can call."
        ),
    ] = False,
    tls_cert: Annotated[
        str, typer.Option(envvar="RIACHO_TLS_CERT", help="Certificate, in PEM: turns TLS on.")
    ] = "",
    tls_key: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_TLS_KEY",
            help="Its private key, unless in the same file. RIACHO_TLS_KEY_PASSWORD opens it.",
        ),
    ] = "",
    tls_client_ca: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_TLS_CLIENT_CA",
            help="Authorities of certificates that clients may show to say who they are.",
        ),
    ] = "",
    tls_client_auth: Annotated[
        str,
        typer.Option(
            envvar="RIACHO_TLS_CLIENT_AUTH",
            help="required, requested or none; default: requested, with --tls-client-ca.",
        ),
    ] = "",
    tls_self_signed: Annotated[
        bool,
        typer.Option("--tls-self-signed", help="Make a certificate under --data, to try TLS out."),
    ] = False,
) -> None:
    """Run a gateway, by default with everything in ./riacho-data.

    \b
    riacho serve
    riacho serve --port 9000 --data /var/lib/riacho --zones a,b,c --maintain-every 5m
    riacho serve --kafka 127.0.0.1:19092
    riacho serve --tls-self-signed
    riacho serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem \\
                 --zones a=s3://bucket-a,b=s3://bucket-b --metadata dynamodb://riacho --workers 4

    Kafka's clients connect to 127.0.0.1:9092 (--kafka); security and TLS are those of HTTP.
    Beyond loopback callers need a credential: `riacho keys create --super` makes the first one.
    """
    from service.kafka.listener.address import OFF, chosen
    from service.security.tls.listening import listening
    from service.serve import run
    from service.world import durations
    from service.world.clock import real_world

    try:
        if maintain_every and not durations.seconds(maintain_every):
            raise ValueError("must be longer than nothing; leave it out for never")
    except ValueError as error:
        raise bad_usage(str(error), "--maintain-every") from None
    now_ms = real_world().now_ms()
    made = _self_signed(data, host, tls_cert, now_ms) if tls_self_signed else None
    tls = _usable(lambda: _tls(made, tls_cert, tls_key, tls_client_ca, tls_client_auth))
    for_kafka, address, taken = _usable(
        lambda: chosen(OFF if no_kafka else kafka, os.environ.get(KAFKA_ADVERTISED, ""), workers)
    )
    where = _usable(
        lambda: listening(
            host=host,
            port=port,
            security=security,
            insecure=insecure,
            tls=tls,
            now_ms=now_ms,
            kafka=for_kafka,
            kafka_host=None if address is None else address.host,
            warnings=(taken,) if taken else (),
        )
    )
    if made is not None:
        _show(made[1], where.port)
    run(
        where,
        data=data,
        zones=zones,
        metadata=metadata,
        workers=workers,
        reload=reload,
        log_level=log_level,
        maintain_every=maintain_every,
    )


def _usable(decide: Callable[[], T]) -> T:
    """Return what `decide` returns, or end with exit code 2."""
    try:
        return decide()
    except InvalidConfig as error:
        note(f"riacho serve: {error}")
        raise typer.Exit(2) from None


def _self_signed(data: Path, host: str, cert: str, now_ms: int) -> tuple[Path, Path]:
    from service.security.tls.self_signed import self_signed

    if cert:
        raise bad_usage("--tls-cert names a certificate already", "--tls-self-signed")
    return _usable(lambda: self_signed(data / "tls", host, now_ms))


def _tls(
    made: tuple[Path, Path] | None, cert: str, key: str, client_ca: str, client_auth: str
) -> "TlsFiles | None":
    from service.security.tls.files import tls_files

    return tls_files(
        cert=str(made[0]) if made else cert,
        key=key,
        key_password=os.environ.get(KEY_PASSWORD, ""),
        client_ca=client_ca,
        client_auth=client_auth,
    )


def _show(for_clients: Path, port: int) -> None:
    """Say what clients need to believe a certificate that the gateway has made for itself."""
    path = for_clients.absolute()
    note(f"clients check this gateway with {path}:")
    note(f"  curl --cacert {path} https://localhost:{port}/ready")
    note(f"  RIACHO_CA_FILE={path} riacho topic list --url https://localhost:{port}")
