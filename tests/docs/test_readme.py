"""The lines of README and tour work when they are pasted, from the first to the last."""

import json
import shutil
import sys
from pathlib import Path

import httpx
import pytest

from riacho import Admin
from tests.docs.markdown import ROOT, blocks
from tests.docs.running import READERS_ADDRESS, run, shell
from tests.gateway import GatewayProcess, free_port, start_gateway

README = ROOT / "README.md"
KAFKA = ROOT / "docs/kafka.md"
TOUR = ROOT / "docs/tour.md"


def test_the_tour_works_verbatim(gateway: GatewayProcess) -> None:
    [tour] = blocks(README, "sh")
    created, written, fetched, tailed, partitions = (
        shell(line, gateway) for line in tour.text.splitlines()
    )
    assert json.loads(created)["name"] == "orders"
    assert json.loads(written) == {"results": [{"partition": 0, "base_offset": 0, "count": 1}]}
    assert json.loads(fetched)["records"][0]["value"] == {"item": "tea"}
    assert "id: 0\ndata: " in tailed
    assert json.loads(partitions)["partitions"][0]["high_watermark"] == 1


def test_the_python_lines_work_verbatim(gateway: GatewayProcess, tmp_path: Path) -> None:
    program, _ = blocks(README, "python")
    printed = run([sys.executable, "-c", program.text], gateway, tmp_path)
    assert 'ana {"item": "tea"}\n' in printed
    assert 'caio {"item":"coffee"}\n' in printed


def test_the_javascript_lines_work_verbatim(gateway: GatewayProcess, tmp_path: Path) -> None:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    [program] = blocks(README, "javascript")
    here = program.text.replace(f"http://{READERS_ADDRESS}", gateway.url)
    printed = run(["node", "--input-type=module", "-e", here], gateway, tmp_path)
    assert printed.startswith("0 ana tea\n")
    assert printed.endswith(" bia mate\n")


def test_the_lines_for_kafkas_clients_work_verbatim(tmp_path: Path) -> None:
    _, short = blocks(README, "python")
    [both] = blocks(KAFKA, "python")
    port = free_port()
    with start_gateway(tmp_path, "--kafka", f"127.0.0.1:{port}") as gateway:
        for program in (short, both):
            here = program.text.replace("localhost:9092", f"127.0.0.1:{port}")
            printed = run([sys.executable, "-c", here], gateway, tmp_path)
        fetched = httpx.get(f"{gateway.url}/v1/topics/orders/partitions/0/records")
    assert printed == "0 ana home\n"
    [record] = fetched.json()["records"]
    assert (record["key"], record["value"]) == ("davi", '{"item": "rum"}')


def test_the_command_line_works_verbatim(gateway: GatewayProcess) -> None:
    [lines] = blocks(TOUR, "sh")
    printed = shell(lines.text, gateway)
    assert "ana home\n" in printed
    assert "bia cart\n" in printed
    assert "lane.partitions" in printed


def test_the_transaction_works_verbatim(gateway: GatewayProcess, tmp_path: Path) -> None:
    [transaction] = blocks(TOUR, "python")
    with Admin(gateway.url) as admin:
        [before] = admin.partitions("orders")
        run([sys.executable, "-c", transaction.text], gateway, tmp_path)
        [after] = admin.partitions("orders")
        committed = sum(each.offset for each in admin.group_offsets("copier"))
    assert after.high_watermark - before.high_watermark == committed > 0


def test_the_gateway_is_closed_verbatim(tmp_path: Path) -> None:
    """The first key is made in the stores of a gateway that runs, which accepts it."""
    (tmp_path / ".venv").symlink_to(Path(sys.prefix))
    [closing] = [each for each in blocks(README, "console") if "keys create" in each.text]
    first, *others = closing.text.splitlines()
    made = first.replace("riacho keys create", "riacho keys create --data data")
    assert made != first
    with start_gateway(tmp_path, "--security", "on") as gateway:
        printed = shell("\n".join([made, *others]), gateway, tmp_path)
    assert "\nrk_" in printed
    assert "\nyes: allowed by an ACL on TOPIC orders for User:ana\n" in printed
    assert printed.endswith("\nno: no ACL allows User:ana READ on TOPIC orders\nnot yet\n")


def test_rights_are_given_verbatim(gateway: GatewayProcess) -> None:
    [rights] = [each for each in blocks(TOUR, "console") if "riacho whoami" in each.text]
    printed = shell(rights.text, gateway)
    assert "\nno: no ACL allows User:bia WRITE on TOPIC orders\nas it should be\n" in printed
    assert "topics=orders,shop.* operations=READ" in printed
    assert "principal    User:ANONYMOUS" in printed


def test_the_two_commands_are_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for line in blocks(README, "console")[0].text.splitlines():
        assert f"\n{line.split()[1]}: $(VENV)" in makefile, line
