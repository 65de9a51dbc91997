"""`connection.url` as JDBC drivers and as SQLAlchemy write it, parsed into one address.

    jdbc:sqlite:orders.db                                sqlite:///orders.db
    jdbc:postgresql://host:5432/shop?sslmode=require     postgresql+asyncpg://host/shop
    jdbc:mysql://host:3306/shop   jdbc:mariadb://…       mysql+pymysql://host/shop

Only these databases and drivers are known; others are refused by name. So are passwords, which a
URL would show to everybody who may read a configuration, and options that this module does not
know: each driver has some that read files or load code.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

POSTGRESQL: Final = "postgresql"
MYSQL: Final = "mysql"
SQLITE: Final = "sqlite"

URL_CHARACTERS_MAX: Final = 4096

_DRIVERS: Final[Mapping[str, str]] = {
    "sqlite": SQLITE,
    "sqlite+pysqlite": SQLITE,
    "postgresql": POSTGRESQL,
    "postgresql+asyncpg": POSTGRESQL,
    "mysql": MYSQL,
    "mysql+pymysql": MYSQL,
    "mariadb": MYSQL,
    "mariadb+pymysql": MYSQL,
}
_PORTS: Final = {POSTGRESQL: 5432, MYSQL: 3306}
_HOST: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]+")

_USERS: Final = frozenset({"user", "username"})
_SECRETS: Final = frozenset(
    {"password", "sslpassword", "sslkey", "trustcertificatekeystorepassword"}
)
_TLS: Final = frozenset({"ssl", "sslmode", "usessl", "requiressl", "verifyservercertificate"})
_SCHEMA: Final = "currentschema"
_WITHOUT_EFFECT: Final = frozenset(
    {
        *("allowpublickeyretrieval", "applicationname", "autoreconnect", "cacheprepstmts"),
        *("characterencoding", "connecttimeout", "connectioncollation", "defaultrowfetchsize"),
        *("date_class", "date_precision", "binarytransfer", "logintimeout", "maxreconnects"),
        *("preparethreshold", "rewritebatchedinserts", "rewritebatchedstatements"),
        *("servertimezone", "sockettimeout", "stringtype", "tcpkeepalive", "charset"),
        *("tinyint1isbit", "useaffectedrows", "usecursorfetch", "uselegacydatetimecode"),
        *("useserverprepstmts", "useunicode", "zerodatetimebehavior"),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseAddress:
    """Where a database is. `database` is the file of SQLite."""

    dialect: str
    host: str = ""
    port: int = 0
    database: str = ""
    user: str = ""
    tls: str = "prefer"
    """disable, prefer, require (encrypted), verify-ca or verify-full (and the right server)."""
    schema: str = ""
    """Where PostgreSQL looks for tables first."""


@dataclass(frozen=True, slots=True)
class _Options:
    user: str = ""
    schema: str = ""
    tls: Mapping[str, str] = field(default_factory=dict)


def parse_url(text: str) -> DatabaseAddress:
    """Return where the URL leads; raise `ValueError` in words that never repeat a password."""
    text = text.strip()
    if len(text) > URL_CHARACTERS_MAX:
        raise ValueError(f"has {len(text)} characters, the limit is {URL_CHARACTERS_MAX}")
    jdbc = text[:5].lower() == "jdbc:"
    rest = text[5:] if jdbc else text
    scheme, colon, after = rest.partition(":")
    dialect = _DRIVERS.get(scheme.lower())
    if not colon or dialect is None or (jdbc and "+" in scheme):
        named = f"{scheme!r} is" if colon and re.fullmatch(r"[\w+.-]+", scheme) else "it names"
        raise ValueError(
            f"{named} no database that is known here: it is jdbc:sqlite:FILE,"
            " jdbc:postgresql://HOST:PORT/DATABASE, jdbc:mysql://… or jdbc:mariadb://…"
        )
    if dialect == SQLITE:
        return DatabaseAddress(dialect=SQLITE, database=_file(after, jdbc))
    if not after.startswith("//"):
        after = f"//localhost/{after}"
    return _server(dialect, f"{dialect}:{after}")


def _file(after: str, jdbc: bool) -> str:
    name, _, query = after.partition("?")
    if not jdbc:
        if not name.startswith("///"):
            raise ValueError("a file of SQLite is written sqlite:///FILE, with three slashes")
        name = unquote(name[3:])
    if not name or name.startswith(":") or name.lower().startswith("file:"):
        raise ValueError("names no file: connectors have no databases in memory, no `file:` URIs")
    _options(query)
    return name


def _server(dialect: str, url: str) -> DatabaseAddress:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError("has several hosts, or a port that is no number") from None
    host = parts.hostname or "localhost"
    if _HOST.fullmatch(host) is None:
        raise ValueError("has a host that is no name or address of one server")
    if parts.password is not None:
        raise ValueError("has a password: write it as a reference in connection.password")
    options = _options(parts.query)
    database = unquote(parts.path.lstrip("/"))
    if not database:
        raise ValueError("names no database: write it after the port, as in //host:5432/shop")
    return DatabaseAddress(
        dialect=dialect,
        host=host,
        port=port or _PORTS[dialect],
        database=database,
        user=_user(parts) or options.user,
        tls=_tls(options.tls),
        schema=options.schema,
    )


def _user(parts: SplitResult) -> str:
    return unquote(parts.username or "")


def _options(query: str) -> _Options:
    user = schema = ""
    tls: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True):
        match name.lower():
            case plain if plain in _SECRETS:
                raise ValueError(f"has {name}: write it as a reference in connection.password")
            case plain if plain in _USERS:
                user = value
            case plain if plain in _TLS:
                tls[plain] = value.lower()
            case plain if plain == _SCHEMA:
                schema = value
            case plain if plain not in _WITHOUT_EFFECT:
                raise ValueError(f"has the option {name!r}, which is not known here: leave it out")
    return _Options(user, schema, tls)


_MODES: Final[Mapping[str, str]] = {
    "disable": "disable",
    "disabled": "disable",
    "allow": "prefer",
    "prefer": "prefer",
    "preferred": "prefer",
    "require": "require",
    "required": "require",
    "trust": "require",
    "verify-ca": "verify-ca",
    "verify_ca": "verify-ca",
    "verify-full": "verify-full",
    "verify_identity": "verify-full",
}


def _tls(options: Mapping[str, str]) -> str:
    named = options.get("sslmode")
    if named is not None:
        if named not in _MODES:
            raise ValueError(f"has sslmode={named}, which is none of {', '.join(_MODES)}")
        return _MODES[named]
    if options.get("verifyservercertificate") == "true":
        return "verify-ca"
    if options.get("ssl", "false") in ("true", ""):
        return "verify-full"
    wanted = [options[name] for name in ("requiressl", "usessl") if name in options]
    if "true" in wanted:
        return "require"
    return "disable" if "false" in wanted else "prefer"
