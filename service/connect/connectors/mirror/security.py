"""How the source cluster is reached: Kafka's settings of Java clients as librdkafka has them.

Only what is listed here is passed on: librdkafka can also be told to run programs and load
libraries.
"""

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from service.connect.config.keys import Config, Importance, Key, KeyType, one_of

PREFIX: Final = "source.cluster."
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SECRETS: Final = (
    "sasl.jaas.config",
    "ssl.keystore.key",
    "ssl.keystore.password",
    "ssl.key.password",
    "ssl.truststore.password",
)
_ABOUT: Final = {
    "bootstrap.servers": "Brokers of the source cluster, host:port with commas between.",
    "security.protocol": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL.",
    "sasl.mechanism": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER.",
    "sasl.jaas.config": "As Java's clients have it; the user and the password are taken from it.",
    "sasl.oauthbearer.token.endpoint.url": "Where OAUTHBEARER gets tokens.",
    "ssl.truststore.type": "PEM.",
    "ssl.truststore.certificates": "Certificates of authorities, as PEM.",
    "ssl.truststore.location": "A PEM file below RIACHO_CONNECT_FILES.",
    "ssl.truststore.password": "Not used: PEM has none.",
    "ssl.keystore.type": "PEM or PKCS12.",
    "ssl.keystore.certificate.chain": "The client's certificates, as PEM.",
    "ssl.keystore.key": "The client's key, as PEM.",
    "ssl.keystore.location": "A PEM or PKCS12 file below RIACHO_CONNECT_FILES.",
    "ssl.keystore.password": "Of a PKCS12 file.",
    "ssl.key.password": "Of the client's key.",
    "ssl.endpoint.identification.algorithm": "https; empty: the name of a broker is not checked.",
    "client.id": "What this client calls itself.",
    "client.rack": "Where this client is, so that it reads from near brokers.",
    "fetch.max.bytes": "Bytes of one answer of a broker, at most.",
    "fetch.min.bytes": "Bytes that a broker waits for.",
    "max.partition.fetch.bytes": "Bytes of one partition in an answer, at most.",
    "isolation.level": "read_committed or read_uncommitted.",
    "request.timeout.ms": "How long an answer is waited for.",
}
_CHECKS: Final = {
    "security.protocol": one_of(*PROTOCOLS),
    "sasl.mechanism": one_of(*MECHANISMS),
    "isolation.level": one_of("read_committed", "read_uncommitted"),
    "ssl.truststore.type": one_of("PEM"),
    "ssl.keystore.type": one_of("PEM", "PKCS12"),
}
_SAME: Final = {
    "bootstrap.servers": "bootstrap.servers",
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.key.password": "ssl.key.password",
    "client.id": "client.id",
    "client.rack": "client.rack",
    "request.timeout.ms": "socket.timeout.ms",
}
_OF_CONSUMER: Final = {
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "max.partition.fetch.bytes": "fetch.message.max.bytes",
    "isolation.level": "isolation.level",
}
_DEFAULTS: Final = {"security.protocol": "PLAINTEXT", "isolation.level": "read_committed"}
_JAAS: Final = re.compile(r"(\w+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|([^\s;\"']+))")


def _key(name: str) -> Key:
    return Key(
        name=PREFIX + name,
        type=KeyType.PASSWORD if name in _SECRETS else KeyType.STRING,
        default=_DEFAULTS.get(name),
        importance=Importance.HIGH if name in ("security.protocol",) else Importance.MEDIUM,
        about=_ABOUT[name],
        group="Source cluster",
        check=_CHECKS.get(name),
    )


KEYS: Final = tuple(_key(name) for name in _ABOUT if name != "bootstrap.servers")


def client_settings(config: Config, files: Path | None) -> dict[str, Any]:
    """Return the settings of every client of the source. Raises `ValueError` in words."""
    said = {
        name.removeprefix(PREFIX): text.strip()
        for name, text in config.items()
        if name.startswith(PREFIX) and text.strip()
    }
    found: dict[str, Any] = {_SAME[name]: text for name, text in said.items() if name in _SAME}
    if "ssl.truststore.location" in said:
        found["ssl.ca.location"] = _file(said["ssl.truststore.location"], files)
    if "ssl.keystore.location" in said:
        found |= _keystore(said, files)
    if config.get(f"{PREFIX}ssl.endpoint.identification.algorithm") == "":
        found["ssl.endpoint.identification.algorithm"] = "none"
    if found.get("security.protocol", "").upper().startswith("SASL"):
        found |= _login(said)
    return found


def consumer_settings(config: Config) -> dict[str, Any]:
    """Return what the configuration says of consumers."""
    named = {PREFIX + name: ours for name, ours in _OF_CONSUMER.items()}
    return {named[name]: text.strip() for name, text in config.items() if name in named}


def _keystore(said: Mapping[str, str], files: Path | None) -> dict[str, str]:
    path = _file(said["ssl.keystore.location"], files)
    if said.get("ssl.keystore.type", "").upper() == "PKCS12":
        password = said.get("ssl.keystore.password", "")
        return {"ssl.keystore.location": path, "ssl.keystore.password": password}
    return {"ssl.certificate.location": path, "ssl.key.location": path}


def _file(text: str, files: Path | None) -> str:
    if files is None:
        raise ValueError("files need RIACHO_CONNECT_FILES, a folder; or give PEM in place")
    root = files.resolve()
    path = (root / text).resolve()
    if not path.is_relative_to(root):
        raise ValueError(f"{text!r} is not below RIACHO_CONNECT_FILES")
    if path.suffix.lower() in (".jks", ".keystore"):
        raise ValueError("is a store of Java's: convert it to PEM with keytool and openssl")
    return str(path)


def _login(said: Mapping[str, str]) -> dict[str, str]:
    mechanism = said.get("sasl.mechanism", "").upper()
    if mechanism not in MECHANISMS:
        raise ValueError(f"{PREFIX}sasl.mechanism must be one of {', '.join(MECHANISMS)}")
    options = jaas_options(said.get("sasl.jaas.config", ""))
    wanted = partial(_option, options)
    if mechanism != "OAUTHBEARER":
        return {"sasl.username": wanted("username"), "sasl.password": wanted("password")}
    login = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": wanted("clientId"),
        "sasl.oauthbearer.client.secret": wanted("clientSecret"),
    }
    return login | ({"sasl.oauthbearer.scope": options["scope"]} if "scope" in options else {})


def _option(options: Mapping[str, str], name: str) -> str:
    if name not in options:
        raise ValueError(f'{PREFIX}sasl.jaas.config has no {name}="…"')
    return options[name]


def jaas_options(text: str) -> dict[str, str]:
    """Return the options of a login module, `name="value"`."""
    return {
        name: re.sub(r"\\(.)", r"\1", quoted) if quoted else single or bare
        for name, quoted, single, bare in _JAAS.findall(text)
    }
