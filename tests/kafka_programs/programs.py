"""Gets programs from their registries, once, into `.bench/`; skips where that is not possible."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from benchmarks.peers.maven import BENCH, LOGGING, Artifact, installed, java
from benchmarks.peers.peer import NotHere

VERSION: Final = "4.3.1"
KAFKA: Final = [
    *(Artifact("org.apache.kafka", name, VERSION) for name in ("kafka_2.13", "kafka-tools")),
    *(
        Artifact("org.apache.kafka", f"connect-{name}", VERSION)
        for name in ("runtime", "file", "mirror")
    ),
    LOGGING,
]
DEBEZIUM: Final = [Artifact("io.debezium", "debezium-connector-postgres", "3.6.1.Final")]
STREAMS: Final = [Artifact("org.apache.kafka", "kafka-streams", VERSION), LOGGING]
SPARK_KAFKA: Final = [
    *(
        Artifact("org.apache.spark", f"spark-{name}-0-10_2.13", version, is_alone=True)
        # Their versions need not be Spark's, and not every registry has every one.
        for name, version in (("sql-kafka", "4.2.0"), ("token-provider-kafka", "4.0.0"))
    ),
    Artifact("org.apache.kafka", "kafka-clients", "3.9.2", is_alone=True),
    Artifact("org.apache.commons", "commons-pool2", "2.12.1", is_alone=True),
]
KAFKAJS: Final = "kafkajs@2.2.4"
SCHEMA_REGISTRY: Final = "@confluentinc/schemaregistry@1.10.1"

INSTALL_S_MAX: Final = 180.0
"""A registry that does not answer must not hold up all other tests."""

BUILD_S_MAX: Final = 900.0
"""The first build takes a minute of two processors, later ones a second."""

TIMEOUT_S: Final = 300.0
"""For one run of a program, which takes a few seconds."""

JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A command of Kafka's has nothing to compute: most of its time is its start."""


def kafka_jars() -> Path:
    """Return the folder of Kafka's jars, or skip the test."""
    try:
        java()
        return installed(BENCH / "kafka-programs" / "libs", KAFKA, INSTALL_S_MAX)
    except NotHere as why:
        pytest.skip(str(why))


def debezium_jars() -> Path:
    """Return the folder of the jars of Debezium's connector for PostgreSQL, or skip the test."""
    try:
        return installed(BENCH / "debezium" / "libs", DEBEZIUM, INSTALL_S_MAX)
    except NotHere as why:
        pytest.skip(str(why))


def streams_jars() -> Path:
    """Return the folder of the jars of Kafka Streams, or skip the test."""
    if shutil.which("javac") is None:
        pytest.skip("there is no `javac` on the PATH: install a JDK")
    try:
        java()
        return installed(BENCH / "kafka-streams" / "libs", STREAMS, INSTALL_S_MAX)
    except NotHere as why:
        pytest.skip(str(why))


def spark_jars() -> Path:
    """Return the folder of the jars of Spark's Kafka source, or skip the test."""
    try:
        java()
        return installed(BENCH / "spark-kafka" / "libs", SPARK_KAFKA, INSTALL_S_MAX)
    except NotHere as why:
        pytest.skip(str(why))


def kafkajs() -> Path:
    """Return a folder where node finds kafkajs, or skip the test."""
    return _packages("kafkajs", KAFKAJS)


def schema_registry_js() -> Path:
    """Return a folder where node finds Confluent's registry client and kafkajs, or skip."""
    return _packages("schema-registry-js", SCHEMA_REGISTRY, KAFKAJS)


def _packages(name: str, *packages: str) -> Path:
    """Return the folder `name`, which holds packages for node, or skip the test."""
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("node and npm are not installed")
    folder = BENCH / name
    folders = [folder / "node_modules" / each.rpartition("@")[0] for each in packages]
    if not all((each / "package.json").is_file() for each in folders):
        folder.mkdir(parents=True, exist_ok=True)
        options = ["--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder)]
        try:
            subprocess.run(
                [npm, "install", *options, *packages],
                capture_output=True,
                text=True,
                timeout=INSTALL_S_MAX,
                check=True,
            )
        except subprocess.SubprocessError as why:
            pytest.skip(f"npm could not get {packages[0]}: {why}")
    return folder


def go_program() -> Path:
    """Return the program in `golang/`, with franz-go and sarama in it, or skip the test."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("go is not installed")
    sources, program = Path(__file__).with_name("golang"), BENCH / "golang" / "program"
    program.parent.mkdir(parents=True, exist_ok=True)
    # Not another toolchain than the one that is here: it would be hundreds of megabytes.
    env = {**os.environ, "GOTOOLCHAIN": "local"}
    try:
        got = subprocess.run(
            [go, "mod", "download"],
            cwd=sources,
            env=env,
            capture_output=True,
            text=True,
            timeout=INSTALL_S_MAX,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"go did not get its modules in {INSTALL_S_MAX:.0f} s")
    if got.returncode != 0:
        pytest.skip(f"go could not get its modules: {got.stderr.strip()[-300:]}")
    build = [go, "build", "-trimpath", "-o", str(program), "."]
    built = subprocess.run(
        build, cwd=sources, env=env, capture_output=True, text=True, timeout=BUILD_S_MAX
    )
    assert built.returncode == 0, built.stderr
    return program


def run(command: list[str], *, told: str = "", cwd: Path | None = None) -> str:
    """Return what a program prints, which must end well; `told` is its input."""
    done = subprocess.run(
        command, input=told, capture_output=True, text=True, timeout=TIMEOUT_S, cwd=cwd
    )
    assert done.returncode == 0, f"{command[:8]}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
    return done.stdout


class Tools:
    """Kafka's own command line tools, on a gateway."""

    def __init__(self, jars: Path, bootstrap: str, *more: Path) -> None:
        """`more` are folders of other jars that the programs find."""
        self._jars = jars
        self._more = more
        self.bootstrap = bootstrap

    def beside(self, jars: Path) -> "Tools":
        """Return the same tools, which find these jars as well."""
        return Tools(self._jars, self.bootstrap, *self._more, jars)

    def command(self, main: str, *arguments: str) -> list[str]:
        folders = ":".join(f"{each}/*" for each in (self._jars, *self._more))
        return [java(), *JVM, "-cp", folders, main, *arguments]

    def __call__(self, main: str, *arguments: str, told: str = "") -> str:
        """Return what a tool prints; `main` is its class."""
        at = ("--bootstrap-server", self.bootstrap)
        package = "" if main.startswith("kafka.") else "org.apache.kafka.tools."
        return run(self.command(package + main, *at, *arguments), told=told)
