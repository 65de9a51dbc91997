"""Java programs, installed once under `.bench/` by Maven from the registry it is set up for."""

import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.peer import NotHere

BENCH: Final = Path(__file__).parents[2] / ".bench"
INSTALL_S_MAX: Final = 900.0


@dataclass(frozen=True, slots=True)
class Artifact:
    group: str
    name: str
    version: str
    is_alone: bool = False
    """Whether to leave out what it needs: it is there already, or named beside it."""

    def __str__(self) -> str:
        return f"{self.group}:{self.name}:{self.version}"

    def xml(self) -> str:
        nothing = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
        return (
            f"<dependency><groupId>{self.group}</groupId><artifactId>{self.name}</artifactId>"
            f"<version>{self.version}</version>"
            f"{f'<exclusions>{nothing}</exclusions>' if self.is_alone else ''}</dependency>"
        )


KAFKA: Final = Artifact("org.apache.kafka", "kafka_2.13", "4.1.0")
# Kafka's own choice; without it, the reason why a server does not start is not logged.
LOGGING: Final = Artifact("org.apache.logging.log4j", "log4j-slf4j-impl", "2.24.3")


def java() -> str:
    """Return the path of `java`, or raise `NotHere`."""
    if found := shutil.which("java"):
        return found
    raise NotHere("there is no `java` on the PATH: install Java 17 or newer")


def kafka_libs() -> Path:
    """Return the folder of Kafka's jars, which the first call fills.

    Raises `NotHere` if Java or Maven are missing, or Maven cannot get them.
    """
    java()
    return installed(BENCH / "kafka" / "libs", [KAFKA, LOGGING])


def installed(
    libs: Path, artifacts: Iterable[Artifact], seconds_max: float = INSTALL_S_MAX
) -> Path:
    """Return `libs` when it holds the jars of `artifacts` and of all that they need."""
    pom = _pom(artifacts)
    kept = libs.parent / "pom.xml"
    if libs.is_dir() and kept.is_file() and kept.read_text() == pom:
        return libs
    maven = shutil.which("mvn")
    if maven is None:
        raise NotHere("there is no `mvn` on the PATH: install Maven, which gets Kafka's jars")
    libs.parent.mkdir(parents=True, exist_ok=True)
    part = libs.with_name(libs.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    kept.write_text(pom)
    try:
        _copy(maven, kept, part, seconds_max)
        shutil.rmtree(libs, ignore_errors=True)
        part.rename(libs)
    except BaseException:
        kept.unlink()  # So that the next call does not take half of them for all.
        raise
    return libs


def _copy(maven: str, pom: Path, libs: Path, seconds_max: float) -> None:
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
    try:
        done = subprocess.run(
            [*command, f"-DoutputDirectory={libs}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds_max,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotHere(f"Maven did not get Kafka's jars in {seconds_max:.0f} s") from None
    if done.returncode != 0:
        errors = [line for line in done.stdout.splitlines() if "ERROR" in line]
        raise NotHere(f"Maven could not get Kafka's jars: {' '.join(errors[:2]) or done.stderr}")


def _pom(artifacts: Iterable[Artifact]) -> str:
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>riacho</groupId><artifactId>peers</artifactId><version>1</version>"
        "<packaging>pom</packaging>"
        f"<dependencies>{''.join(artifact.xml() for artifact in artifacts)}</dependencies>"
        "</project>\n"
    )
