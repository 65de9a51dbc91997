"""The databases of the tests themselves: what they start as, and that each test has its own."""

import asyncpg
import pymysql
import pytest

from tests.service.connect.databases import Server

pytestmark = pytest.mark.anyio


async def test_postgresql_decodes_its_log(postgresql: Server) -> None:
    one, other = postgresql.fresh(), postgresql.fresh()
    assert one.name != other.name
    connection = await asyncpg.connect(
        host=one.host, port=one.port, user=one.user, password=one.password, database=one.name
    )
    try:
        assert await connection.fetchval("SHOW wal_level") == "logical"
    finally:
        await connection.close()


def test_mariadb_answers(mariadb: Server) -> None:
    fresh = mariadb.fresh()
    connection = pymysql.connect(
        host=fresh.host,
        port=fresh.port,
        user=fresh.user,
        password=fresh.password,
        database=fresh.name,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT 1")
        assert cursor.fetchall() == ((1,),)
