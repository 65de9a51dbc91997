"""Spark's own Kafka source and sink, in a JVM with Kafka's jars, on a gateway."""

import json
import sys
from pathlib import Path

import pytest

from tests.gateway import GatewayProcess
from tests.kafka_programs.programs import run, spark_jars
from tests.torture.sizes import only_proof

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), only_proof]


def test_batch_stream_and_sink(gateway: GatewayProcess, bootstrap: str, tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    jars = ",".join(str(jar) for jar in sorted(spark_jars().glob("*.jar")))
    program = Path(__file__).with_name("spark_copier.py")

    printed = run([sys.executable, str(program), bootstrap, jars, str(tmp_path / "checkpoint")])

    assert json.loads(printed.splitlines()[-1]) == {
        "written": 1000,
        "last offset": 999,
        "since an hour": 1000,
        "rows of each batch": [400, 400, 200],
        "copied": 1000,
        "different": 1000,
        "with headers": 1000,
    }
