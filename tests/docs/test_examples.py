"""The programs under docs/examples do what the guides say, each against a gateway of its own."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from riacho import Producer
from tests.docs.markdown import ROOT, blocks
from tests.docs.running import environment, run
from tests.gateway import GatewayProcess, start_gateway

EXAMPLES = ROOT / "docs/examples"
OTHERS = (ROOT / "docs/exactly-once.md", ROOT / "docs/spark.md")
"""Besides the guides, these show programs."""

GUIDES = sorted((ROOT / "docs/guides").glob("*.md"))

COMMANDS = {
    "curl": ("curl", ["bash"], "sh"),
    "python": (sys.executable, [sys.executable], "py"),
    "javascript": ("node", ["node"], "mjs"),
    "go": ("go", ["go", "run"], "go"),
}


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    with start_gateway(tmp_path) as started:
        yield started


def command(language: str, name: str) -> list[str]:
    tool, start, suffix = COMMANDS[language]
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not installed")
    return [*start, str(EXAMPLES / language / f"{name}.{suffix}")]


@pytest.mark.slow
@pytest.mark.parametrize("language", COMMANDS)
def test_what_is_produced_is_consumed_once(
    language: str, gateway: GatewayProcess, tmp_path: Path
) -> None:
    run(command(language, "produce"), gateway, tmp_path)
    consume = command(language, "consume")
    # The shell reads one partition at a time, the others all of them.
    runs = [[*consume, p] for p in "012"] if language == "curl" else [consume]
    amounts = re.compile(r"""['"]amount['"]: ?(\d+)""")
    printed = "".join(run(each, gateway, tmp_path) for each in runs)
    assert sorted(amounts.findall(printed)) == ["12", "30", "7"]
    assert "".join(run(each, gateway, tmp_path) for each in runs) == ""

    run(command(language, "produce"), gateway, tmp_path)
    printed = "".join(run(each, gateway, tmp_path) for each in runs)
    assert sorted(amounts.findall(printed)) == ["12", "30", "7"]


@pytest.mark.slow
def test_javascript_tails(gateway: GatewayProcess, tmp_path: Path) -> None:
    run(command("javascript", "produce"), gateway, tmp_path)
    printed = run([*command("javascript", "tail"), "1", "2"], gateway, tmp_path)
    assert [line.partition(",")[0] for line in printed.splitlines()] == [
        '{"offset":0',
        '{"offset":1',
    ]


@pytest.mark.slow
def test_python_writes_by_a_schema(gateway: GatewayProcess, tmp_path: Path) -> None:
    assert run(command("python", "schemas"), gateway, tmp_path).splitlines() == [
        "not sent: /amount: it should be an int, a whole number",
        "{'amount': 12, 'day': datetime.date(2026, 1, 31), 'note': None}",
    ]


@pytest.mark.slow
def test_python_tails_from_the_end(gateway: GatewayProcess, tmp_path: Path) -> None:
    run(command("python", "produce"), gateway, tmp_path)
    tail = subprocess.Popen(
        command("python", "async_tail"),
        env=environment(gateway),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    with tail:
        assert tail.stdout is not None
        assert tail.stdout.readline() == "ready\n"
        with Producer(gateway.url) as producer:
            for amount in range(10):
                producer.send("payments", {"amount": amount}, key="ana")
        try:
            printed = tail.stdout.read()
        except BaseException:
            tail.kill()  # Otherwise a tail that does not end keeps the test from failing.
            raise
    assert tail.returncode == 0
    assert len(printed.splitlines()) == 10


@pytest.mark.parametrize("guide", GUIDES, ids=lambda path: path.stem)
def test_guides_show_the_programs_as_they_are(guide: Path) -> None:
    shown = {block.text for page in (guide, *OTHERS) for block in blocks(page)}
    programs = sorted((EXAMPLES / guide.stem).iterdir())
    assert programs
    for program in programs:
        assert program.read_text() in shown, f"{guide.name} shows another {program.name}"


def test_every_language_has_a_guide() -> None:
    assert {path.stem for path in GUIDES} == {path.name for path in EXAMPLES.iterdir()}
