"""Who does the work: threads for little, Spark for much and where there is one."""

from pathlib import Path

import pytest

from service.jobs.runners import spark_session
from service.jobs.runners.choice import How, Runners
from service.jobs.runners.runners import ThreadRunner
from service.jobs.stores import TRAVELLING, ship
from service.settings import Settings
from storage.errors import InvalidConfig, NotSupported

pytestmark = pytest.mark.anyio


class Heard:
    def __init__(self) -> None:
        self.said: list[str] = []

    def planned(self, steps: int) -> None: ...

    def done(self, steps: int, text: str = "") -> None: ...

    def say(self, text: str) -> None:
        self.said.append(text)


def runners(tmp_path: Path, how: How, heard: Heard | None = None) -> Runners:
    return Runners(how, ship(Settings(data=tmp_path)), heard or Heard())


@pytest.fixture
def without_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pyspark = pytest.importorskip("pyspark")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    # Other tests of this process may have started a session.
    for name in ("_active_spark_context", "_gateway", "_jvm"):
        monkeypatch.setattr(pyspark.SparkContext, name, None)


async def test_little_is_done_in_threads(tmp_path: Path) -> None:
    async with runners(tmp_path, How(concurrency=3)) as each:
        runner = await each.for_bytes(1000)

        assert isinstance(runner, ThreadRunner)
        assert runner.parallelism == 3
        assert await each.for_bytes(0) is runner


@pytest.mark.usefixtures("without_java")
async def test_much_is_done_in_threads_if_there_is_no_spark(tmp_path: Path) -> None:
    heard = Heard()

    async with runners(tmp_path, How(), heard) as each:
        assert isinstance(await each.for_bytes(2**40), ThreadRunner)

    assert len(heard.said) == 1
    assert heard.said[0].startswith("goes on without Spark: JAVA_HOME is")


@pytest.mark.usefixtures("without_java")
async def test_insisting_on_spark_without_it_names_what_to_install(tmp_path: Path) -> None:
    async with runners(tmp_path, How(spark=True)) as each:
        with pytest.raises(NotSupported, match="install a Java runtime, 17 or later"):
            await each.for_bytes(0)


async def test_who_wants_no_spark_gets_none(tmp_path: Path) -> None:
    async with runners(tmp_path, How(spark=False)) as each:
        assert isinstance(await each.for_bytes(2**40), ThreadRunner)


def test_a_java_that_is_too_old_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    with pytest.raises(NotSupported, match=r"cannot use .*11\.0\.2"):
        spark_session.check_java()


@pytest.mark.parametrize("master", ["local", "local[*]", "local[8]", "local[2, 3]", "yarn"])
def test_masters(master: str) -> None:
    assert How(master=master).spark_master == master
    assert How(concurrency=3).spark_master == "local[3]"


@pytest.mark.parametrize("master", ["x", "local[", "local[x]", "http://host"])
def test_masters_that_are_none(master: str) -> None:
    with pytest.raises(InvalidConfig, match="is not a Spark master"):
        How(master=master)


def test_what_travels_to_a_worker_says_where_and_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://localhost:1")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")

    shipped = ship(Settings(data=Path("data"), zones="a=s3://bucket"))

    assert shipped.settings.data == tmp_path / "data"
    assert shipped.environment["AWS_ENDPOINT_URL"] == "http://localhost:1"
    assert set(shipped.environment) <= set(TRAVELLING)
    assert "a secret" not in repr(shipped)
