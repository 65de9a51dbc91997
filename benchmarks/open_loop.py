"""Load that does not wait for answers: requests come when they are due, however slow the gateway.

A client that sends the next request when the last was answered slows down together with the
server and never sees an overload. Here a request is late from the moment it was due, also while
it waits for a free connection.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

CONNECTIONS_MAX = 900
"""More wait on our side: many systems give a process no more than 1,024 open files."""
ANSWER_S_MAX = 120.0
TRIES = 3
"""A load is too much after this many failures in a row."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of one request. Status 0: the connection broke, or nothing came."""

    number: int
    due_s: float
    took_s: float
    status: int
    retry_after: str
    body: bytes

    @property
    def is_refusal(self) -> bool:
        """Whether it was refused with a valid `Retry-After`."""
        return self.status in {429, 503} and self.retry_after.isdigit()


class OpenLoop:
    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self._room = asyncio.Semaphore(CONNECTIONS_MAX)

    async def offer(
        self, rate: float, seconds: float, request: Callable[[int], bytes], first: int = 0
    ) -> list[Answer]:
        """Send `rate` requests a second, and return all answers when the last one is there."""
        began_s = time.monotonic()
        waiting = []
        for number in range(int(rate * seconds)):
            due_s = began_s + number / rate
            # Always, so that answers are read also when we are late ourselves.
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            call = self._call(first + number, due_s, request(first + number))
            waiting.append(asyncio.create_task(call))
        return await asyncio.gather(*waiting)

    async def _call(self, number: int, due_s: float, request: bytes) -> Answer:
        status, retry_after, body = 0, "", b""
        async with self._room:
            try:
                async with asyncio.timeout(ANSWER_S_MAX):
                    status, retry_after, body = await self._exchange(request)
            except (OSError, EOFError, TimeoutError) as error:
                body = repr(error).encode()
        return Answer(number, due_s, time.monotonic() - due_s, status, retry_after, body)

    async def _exchange(self, request: bytes) -> tuple[int, str, bytes]:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(fields.get("content-length", "0")))
        except BaseException:
            writer.close()
            raise
        if fields.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return int(head[9:12]), fields.get("retry-after", ""), body

    async def close(self) -> None:
        for _, writer in self._idle:
            writer.close()
        self._idle.clear()


def accepted(answers: Sequence[Answer]) -> list[Answer]:
    return [answer for answer in answers if answer.status == 200]


def percentile_ms(answers: Sequence[Answer], percent: int) -> float:
    """Return that of accepted requests; 0 if there are too few."""
    took = [answer.took_s * 1000 for answer in accepted(answers)]
    return statistics.quantiles(took, n=100)[percent - 1] if len(took) > 1 else 0.0


@dataclass(frozen=True)
class Step:
    rate: float
    answers: list[Answer]

    @property
    def took_s(self) -> float:
        """From the first request to the last answer."""
        first = min(answer.due_s for answer in self.answers)
        return max(answer.due_s + answer.took_s for answer in self.answers) - first

    @property
    def accepted_per_s(self) -> float:
        return len(accepted(self.answers)) / self.took_s

    @property
    def refused(self) -> float:
        return sum(answer.status != 200 for answer in self.answers) / len(self.answers)


async def find_knee(
    offer: Callable[[float, float], Awaitable[list[Answer]]],
    first_rate: float,
    seconds: float,
    factor: float = 1.5,
) -> list[Step]:
    """Raise the load until latency or refusals bend; the last step but one is the knee.

    They bend when one in a hundred is refused, when less than nine in ten requests are answered
    in time, or when the median is ten times that of the first step. A step that bends is tried
    again. `offer` takes the requests per second, and for how many seconds to send them.
    """
    steps: list[Step] = []
    rate, bent = first_rate, 0
    while True:
        step = Step(rate, await offer(rate, seconds))
        first = steps[0] if steps else step
        bends = (
            step.refused > 0.01
            or step.accepted_per_s < 0.9 * rate * seconds / (seconds + 0.1)
            or percentile_ms(step.answers, 50) > 10 * percentile_ms(first.answers, 50)
        )
        if bends and steps:
            bent += 1
            if bent == TRIES:
                return [*steps, step]
            continue  # Once is chance: something else used the machine.
        bent = 0
        steps.append(step)
        rate *= factor
