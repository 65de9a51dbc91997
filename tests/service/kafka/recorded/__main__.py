"""Ask a Kafka and store its answers: python -m tests.service.kafka.recorded 127.0.0.1 9092

It must be new: topics are created here, and the groups must not exist.
"""

import json
import socket
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from service.kafka.protocol.codec import decode_response, encode_request
from service.kafka.protocol.error_codes import ErrorCode
from service.kafka.protocol.messages.classic_groups import FindCoordinatorRequest, HeartbeatRequest
from service.kafka.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from service.kafka.protocol.messages.transactions import DescribeTransactionsRequest
from service.kafka.protocol.notation import Message
from tests.service.kafka.recorded.asked import CLOSED, Ask, Raw, Talk, codes
from tests.service.kafka.recorded.cases import CASES, NEW_ID, RAW

ANSWERS = Path(__file__).parent / "answers.json"


class Connection:
    """One connection to a broker."""

    def __init__(self, host: str, port: int) -> None:
        self._socket = socket.create_connection((host, port), timeout=60)

    def ask(self, asked: Ask | Talk) -> Any:
        """Return the codes of the answer, or of the last one."""
        if isinstance(asked, Ask):
            answer = self.answer(asked)
            return CLOSED if answer is None else codes(answer)
        talk, answer = asked(), None
        with suppress(StopIteration):
            while True:
                answer = self.answer(talk.send(answer))
        return codes(answer)

    def answer(self, asked: Ask) -> Any:
        request = asked.request
        frame = b"".join(encode_request(request.KEY, asked.version, 1, "recorder", request))
        answer = self._answer(frame)
        return answer and decode_response(request.KEY, asked.version, answer)[1]

    def raw(self, asked: Raw) -> str:
        head = struct.pack(">hhih", asked.key, asked.version, 1, -1)
        if asked.version >= 9:
            head += b"\0"
        frame = head + asked.body
        answer = self._answer(struct.pack(">i", len(frame)) + frame)
        return CLOSED if answer is None else "answered"

    def close(self) -> None:
        self._socket.close()

    def _answer(self, frame: bytes) -> bytes | None:
        try:
            self._socket.sendall(frame)
            size = self._exactly(4)
            return None if size is None else self._exactly(int.from_bytes(size))
        except ConnectionError:
            return None

    def _exactly(self, size: int) -> bytes | None:
        found = b""
        while len(found) < size:
            more = self._socket.recv(size - len(found))
            if not more:
                return None
            found += more
        return found


def main(host: str, port: int) -> None:
    compacted = [CreatableTopicConfig(name="cleanup.policy", value="compact")]
    topics = [
        CreatableTopic(name="t", num_partitions=2, replication_factor=1),
        CreatableTopic(name="compacted", num_partitions=1, replication_factor=1, configs=compacted),
    ]
    Connection(host, port).ask(Ask(7, CreateTopicsRequest(topics=topics, timeout_ms=5000)))
    for kind in range(2):
        _wait_for_coordinator(host, port, kind)
    while Connection(host, port).answer(NEW_ID).error_code:
        time.sleep(0.5)
    answers: dict[str, Any] = {}
    for name, asked in {**CASES, **RAW}.items():
        connection = Connection(host, port)
        answers[name] = connection.raw(asked) if isinstance(asked, Raw) else connection.ask(asked)
        connection.close()
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")


def _wait_for_coordinator(host: str, port: int, kind: int) -> None:
    """Wait until groups (0) or transactions (1) are answered: their topics are made by the call."""
    find = FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"])
    known: Message = DescribeTransactionsRequest(transactional_ids=["none"])
    if kind == 0:
        known = HeartbeatRequest(group_id="none", generation_id=1, member_id="m")
    not_yet = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
    not_yet.add(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    while True:
        connection = Connection(host, port)
        connection.ask(Ask(4, find))
        if not not_yet & {*connection.ask(Ask(0, known)).values()}:
            return
        connection.close()
        time.sleep(0.5)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
