"""SecretReferences lead to secrets where they may, and nothing else shows a secret."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.process.references.properties import parse_properties
from service.process.references.references import (
    HIDDEN,
    Resolved,
    SecretReferences,
    masked,
    names_secret,
)
from service.settings import Settings
from storage.errors import InvalidConfig, StoreUnavailable
from tests.storage.helpers import servers

SECRET = "s3cr3t-marker"
ENVIRONMENT = {"DB_PASSWORD": SECRET, "NESTED": "${env:DB_PASSWORD}", "EMPTY": ""}


def refused(references: SecretReferences, text: str) -> str:
    """Return why `text` is refused; it never repeats the secret."""
    with pytest.raises(InvalidConfig) as caught:
        references.resolve(text)
    message = str(caught.value)
    assert SECRET not in message
    assert text in message
    return message


def test_variables_are_resolved_where_they_are_named() -> None:
    references = SecretReferences(environment=ENVIRONMENT)

    assert references.resolve("${env:DB_PASSWORD}") == SECRET
    assert references.resolve("a ${env:DB_PASSWORD} b${env:EMPTY}") == f"a {SECRET} b"
    # A value is a value, whatever it looks like.
    assert references.resolve("${env:NESTED}") == "${env:DB_PASSWORD}"
    for text in ("", "$", "${}", "${topic}", "{env:X}", "$env:X", "${ENV:X}", "${:x}", "${env:}"):
        assert references.resolve(text) == text
        assert not names_secret(text)
    assert "no such variable" in refused(references, "${env:OTHER}")
    assert "no provider 'vault'" in refused(references, "${vault:x}")


def test_variables_may_be_limited() -> None:
    references = SecretReferences(environment=ENVIRONMENT, env="DB_.*|NO")

    assert references.resolve("${env:DB_PASSWORD}") == SECRET
    assert "RIACHO_SECRET_ENV" in refused(references, "${env:NESTED}")
    assert "no such variable" in refused(references, "${env:NO}")
    with pytest.raises(InvalidConfig, match="RIACHO_SECRET_ENV"):
        SecretReferences(env="(")


def test_files_are_read_whole_or_by_entry(tmp_path: Path) -> None:
    whole, properties = tmp_path / "password", tmp_path / "db.properties"
    whole.write_text(f"{SECRET}\r\n")
    properties.write_text(f"# of the database\nuser=ana\npassword = {SECRET}\n")
    references = SecretReferences()

    assert references.resolve(f"${{file:{whole}}}") == SECRET
    assert references.resolve(f"${{file:{properties}:password}}") == SECRET
    assert references.resolve(f"${{file:{properties}:user}}") == "ana"
    assert "no such entry" in refused(references, f"${{file:{properties}:other}}")
    assert "no such file" in refused(references, f"${{file:{tmp_path}/other}}")
    assert "must begin with a slash" in refused(references, "${file:etc/passwd}")
    assert "Is a directory" in refused(references, f"${{file:{tmp_path}}}")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    assert "more than" in refused(references, f"${{file:{tmp_path}/large}}")
    (tmp_path / "bytes").write_bytes(b"\xff")
    assert "UTF-8" in refused(references, f"${{file:{tmp_path}/bytes}}")
    os.mkfifo(tmp_path / "pipe")
    assert "no regular file" in refused(references, f"${{file:{tmp_path}/pipe}}")


def test_others_may_name_only_what_the_operator_lists(tmp_path: Path) -> None:
    (tmp_path / "password").write_text(SECRET)
    file = f"${{file:{tmp_path}/password}}"
    closed = SecretReferences(environment=ENVIRONMENT).of_others()
    assert "RIACHO_SECRET_ENV says which variables" in refused(closed, "${env:DB_PASSWORD}")
    assert "RIACHO_SECRET_FILES says which directories" in refused(closed, file)
    limits = SecretReferences(environment=ENVIRONMENT, env="DB_.*", files=str(tmp_path))
    for references in (limits, limits.of_others()):
        assert references.resolve("${env:DB_PASSWORD}" + file) == SECRET + SECRET


def test_files_are_only_where_the_operator_allows_them(tmp_path: Path) -> None:
    inside, outside = tmp_path / "in", tmp_path / "inner"
    inside.mkdir()
    outside.mkdir()
    for folder in (inside, outside):
        (folder / "password").write_text(SECRET)
    (inside / "link").symlink_to(outside / "password")
    (outside / "link").symlink_to(inside / "password")
    references = SecretReferences.of(Settings(secret_files=f"/nowhere, {inside}"))

    assert references.resolve(f"${{file:{inside}/password}}") == SECRET
    assert references.resolve(f"${{file:{outside}/link}}") == SECRET
    for path in (
        outside / "password",
        inside / ".." / "inner" / "password",
        inside / "link",
        inside / "missing",
        outside / "missing",
        Path("/etc/passwd"),
    ):
        assert "RIACHO_SECRET_FILES" in refused(references, f"${{file:{path}}}")


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("a=b", {"a": "b"}),
        ("a:b\nc d\ne\n", {"a": "b", "c": "d", "e": ""}),
        ("  a\\ b \\=c = x = y ", {"a b": "=c = x = y "}),
        ("! no\n#no\n\na=1\na=2", {"a": "2"}),
        ("a=one \\\n   two\r\nb=\\u00e9\\t\\\\", {"a": "one two", "b": "é\t\\"}),
        ("a=p@ss=w:rd#1!", {"a": "p@ss=w:rd#1!"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, entries: dict[str, str]) -> None:
    assert parse_properties(text) == entries


@given(st.text(max_size=200))
def test_any_text_is_some_properties(text: str) -> None:
    parse_properties(text)


def test_what_is_shown_has_references_and_no_secrets() -> None:
    config = {
        "connection.password": "plain",
        "database.user": "ana",
        "sasl.jaas.config": f'… password="{SECRET}";',
        "api.token": "${env:TOKEN}",
        "aws.secret.access.key": "mixed ${env:TOKEN}",
        "connection.url": "postgresql://ana:pw@host/db",
        "topic": "tokens",
        "empty.password": "",
    }

    assert masked(config) == {
        **config,
        "connection.password": HIDDEN,
        "sasl.jaas.config": HIDDEN,
        "aws.secret.access.key": HIDDEN,
        "connection.url": HIDDEN,
    }


@pytest.mark.anyio
async def test_what_was_resolved_can_be_taken_out_of_texts_again() -> None:
    references = SecretReferences(environment={**ENVIRONMENT, "SHORT": "e"})
    found = await references.resolved(
        {"url": "postgresql://ana:${env:DB_PASSWORD}@host", "user": "${env:SHORT}", "n": "1"}
    )

    assert found.config == {"url": f"postgresql://ana:{SECRET}@host", "user": "e", "n": "1"}
    assert found.hide(f"cannot connect to {found.config['url']}") == (
        f"cannot connect to postgresql://ana:{HIDDEN}@host"
    )
    assert SECRET not in repr(found)
    assert await references.resolved({"a": "b"}) == Resolved({"a": "b"}, frozenset())


@pytest.fixture(scope="module")
def secrets() -> Iterator[dict[str, str]]:
    """A Secrets Manager with two secrets: their ARNs."""
    with servers.ministack("secretsmanager") as url, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", url)
        patch.setenv("AWS_ACCESS_KEY_ID", servers.ACCESS_KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", servers.SECRET_KEY)
        patch.setenv("AWS_REGION", servers.REGION)
        client = boto3.client("secretsmanager", region_name=servers.REGION, endpoint_url=url)
        texts = {"plain": SECRET, "db/orders": json.dumps({"password": SECRET, "port": 5432})}
        made = {
            name: client.create_secret(Name=name, SecretString=text)["ARN"]
            for name, text in texts.items()
        }
        client.create_secret(Name="binary", SecretBinary=b"\x00")
        client.close()
        yield made


@pytest.mark.aws
def test_secrets_of_aws_are_read_by_name_and_by_arn(secrets: dict[str, str]) -> None:
    references = SecretReferences()

    for name in ("plain", secrets["plain"]):
        assert references.resolve(f"${{aws-secret:{name}}}") == SECRET
    for name in ("db/orders", secrets["db/orders"]):
        assert references.resolve(f"${{aws-secret:{name}:password}}") == SECRET
        assert references.resolve(f"${{aws-secret:{name}:port}}") == "5432"
        assert "no such entry" in refused(references, f"${{aws-secret:{name}:other}}")
    assert "not a JSON object" in refused(references, "${aws-secret:plain:password}")
    assert "no ARN" in refused(references, "${aws-secret:arn:aws:s3}")
    for name, reason in (("other", "ResourceNotFoundException"), ("binary", "binary")):
        assert reason in refused(references, f"${{aws-secret:{name}}}")


def test_an_aws_that_does_not_answer_is_worth_another_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with pytest.raises(StoreUnavailable, match="aws-secret:x") as caught:
        SecretReferences().resolve("${aws-secret:x}")
    assert SECRET not in str(caught.value)
