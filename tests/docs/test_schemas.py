"""The tour in docs/schemas.md, as a reader would take it."""

import json
from pathlib import Path

from tests.docs.markdown import ROOT, blocks
from tests.docs.running import shell
from tests.gateway import GatewayProcess

GUIDE = ROOT / "docs/schemas.md"


def test_the_tour_says_what_the_guide_says(gateway: GatewayProcess, tmp_path: Path) -> None:
    first, second, curled, checked = (each.text for each in blocks(GUIDE) if each.info == "sh")

    printed = shell(first, gateway, tmp_path)
    assert '"id":1' in printed
    assert '"version":1' in printed
    assert printed.endswith('"fields":[{"name":"amount","type":"int"}]}')
    refused = shell(second, gateway, tmp_path)
    assert '"is_compatible":false' in refused
    assert '"error_code":409' in refused
    assert refused.count("TYPE_MISMATCH") == 2
    assert refused.count("/fields/0/type") >= 2
    told = shell(curled, gateway, tmp_path)
    assert '"value_schema_id":1' in told
    assert "records[0].value at /amount" in told
    assert '"value":{"amount":3}' in told

    told = shell(checked, gateway, tmp_path)
    [example] = [each.text for each in blocks(GUIDE) if each.info == "json"]
    refused, accepted = (json.loads(line) for line in told.replace("}{", "}\n{").splitlines()[-2:])
    assert {name: refused[name] for name in json.loads(example)} == json.loads(example)
    assert accepted == {"results": [{"partition": 0, "base_offset": 0, "count": 2}]}


def test_the_commands_print_what_the_guide_says(gateway: GatewayProcess, tmp_path: Path) -> None:
    [lines] = blocks(GUIDE, "bash")

    printed = shell(lines.text, gateway, tmp_path)
    assert '"value":{"amount":3},"value_schema_id":' in printed
    assert "not compatible by BACKWARD, beside version 1:\n  TYPE_MISMATCH at" in printed
    assert "exit code 1\n" in printed
    assert '~ /fields/amount/type  "int" -> "long"\n' in printed
    assert "FORWARD   no: version 1 reads data of 2\n" in printed
    assert "sales-value" in printed.splitlines()[-1]
