"""The answers in docs/http-api.md are those of a gateway, in the order of the document."""

from tests.docs.markdown import ROOT
from tests.docs.running import shell
from tests.docs.transcripts import comparable, transcripts
from tests.gateway import GatewayProcess

API = ROOT / "docs/http-api.md"


def test_every_answer_is_what_a_gateway_says(gateway: GatewayProcess) -> None:
    found = transcripts(API)
    assert len(found) > 10
    for each in found:
        kind = each.answer.info
        printed = shell(each.commands.text, gateway)
        assert comparable(printed, kind) == comparable(each.answer.text, kind), each.commands
