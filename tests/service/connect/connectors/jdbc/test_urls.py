"""`connection.url`: what is understood, and what is refused in words that tell no secret."""

import pytest

from service.connect.connectors.jdbc.dialects import VALUE, TableName, dialect_of
from service.connect.connectors.jdbc.urls import DatabaseAddress, parse_url
from service.connect.data.errors import DataFault


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("jdbc:sqlite:a b.db", DatabaseAddress(dialect="sqlite", database="a b.db")),
        (
            "jdbc:sqlite:/x/y.db?date_class=TEXT",
            DatabaseAddress(dialect="sqlite", database="/x/y.db"),
        ),
        ("sqlite:///y%20.db", DatabaseAddress(dialect="sqlite", database="y .db")),
        (
            "jdbc:postgresql://h/d?user=u&currentSchema=s&ssl=true",
            DatabaseAddress(
                dialect="postgresql",
                host="h",
                port=5432,
                database="d",
                user="u",
                schema="s",
                tls="verify-full",
            ),
        ),
        (
            "jdbc:postgresql:d",
            DatabaseAddress(dialect="postgresql", host="localhost", port=5432, database="d"),
        ),
        (
            "mysql+pymysql://u@[::1]:33/d?sslMode=REQUIRED",
            DatabaseAddress(
                dialect="mysql", host="::1", port=33, database="d", user="u", tls="require"
            ),
        ),
        (
            "jdbc:mariadb://h:3307/d?useSSL=false",
            DatabaseAddress(dialect="mysql", host="h", port=3307, database="d", tls="disable"),
        ),
    ],
)
def test_urls_are_understood(url: str, expected: DatabaseAddress) -> None:
    assert parse_url(url) == expected


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("jdbc:oracle:thin:@h:1521:x", "'oracle' is no database"),
        ("postgresql+psycopg2://h/d", "psycopg2"),
        ("postgresql://u:s3cret@h/d", "connection.password"),
        ("jdbc:mysql://h/d?password=s3cret", "connection.password"),
        ("jdbc:mysql://h/d?allowLoadLocalInfile=true", "allowLoadLocalInfile"),
        ("jdbc:postgresql://a,b/d", "no name or address"),
        ("jdbc:postgresql://a:1,b:2/d", "several hosts"),
        ("jdbc:postgresql://%2Ftmp/d", "no name or address"),
        ("jdbc:postgresql://h", "names no database"),
        ("jdbc:sqlite::memory:", "names no file"),
        ("jdbc:sqlite:file:x?mode=rw", "names no file"),
        ("", "no database"),
    ],
)
def test_urls_are_refused_without_a_secret_in_the_text(url: str, why: str) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011
        parse_url(url)
    assert why in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_names_are_quoted_so_that_none_is_sql() -> None:
    postgresql, mysql = dialect_of("postgresql"), dialect_of("mysql")
    assert postgresql.quoted('a"; DROP') == '"a""; DROP"'
    assert mysql.quoted("a`b") == "`a``b`"
    assert dialect_of("postgresql", "never").quoted("Id") == "Id"
    assert dialect_of("postgresql", "never").quoted("a b") == '"a b"'
    assert postgresql.table_name('d.s."a.""b"') == TableName('a."b', "s")
    assert postgresql.finished(f"a = {VALUE} AND b = {VALUE}") == "a = $1 AND b = $2"
    assert mysql.finished(f"`50%` = {VALUE}") == "`50%%` = %s"
    with pytest.raises(DataFault):
        postgresql.quoted(f"a{VALUE}")
