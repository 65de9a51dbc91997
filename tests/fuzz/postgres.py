"""Decoders of what a PostgreSQL server sends of its changes."""

from hypothesis import strategies as st

from service.connect.connectors.postgres import pgoutput
from service.connect.data.errors import TaskFault
from tests.fuzz.decoder import Decoder
from tests.service.connect.connectors.postgres.test_pgoutput import MESSAGES

_MODULE = "service.connect.connectors.postgres.pgoutput"

ALL = [
    Decoder(
        covers=(
            f"{_MODULE}.decode",
            *(f"{_MODULE}._{name}" for name in ("begin", "commit", "relation", "type", "message")),
            *(f"{_MODULE}._{name}" for name in ("insert", "update", "delete", "truncate", "row")),
        ),
        decode=pgoutput.decode,
        valid=st.sampled_from(list(MESSAGES)),
        errors=(TaskFault,),
        factor=120,
        why="a null of one byte is an element of eight; a column is an object with a name",
    ),
]
