"""Work in forked processes: each starts with every module loaded, and leaves nothing behind.

A child leads a process group of its own. Processes that it started end with it, and it is ended
when its time is over.
"""

import json
import math
import os
import resource
import selectors
import signal
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

MEMORY_BYTES_MAX: Final = 3 << 30
"""Maximum memory above that of the parent: a mutant may allocate without end."""

IDLE_S_MAX: Final = 6.0
"""Maximum time without computing: no quick test waits for long."""

LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Job:
    """The work of a child, and its maximum computing time."""

    function: Callable[[], Any]
    computing_s: float


class ChildFailed(Exception):
    """An error that a child raised, with its traceback."""


@dataclass(slots=True)
class _Child:
    number: int
    pid: int
    reply: int
    computed: int = 0
    idle_since_s: float = field(default_factory=time.monotonic)
    received: bytes = b""

    def is_stuck(self) -> bool:
        """Return whether the child has slept for too long; call this from time to time."""
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rpartition(")")[2].split()
        computed = int(fields[11]) + int(fields[12])
        # On a busy machine a child may wait long for a core. That is not sleeping.
        if fields[0] != "S" or computed != self.computed:
            self.computed, self.idle_since_s = computed, time.monotonic()
        return time.monotonic() - self.idle_since_s > IDLE_S_MAX


def run_all(jobs: Sequence[Job], processes: int) -> Iterator[tuple[int, Any]]:
    """Run every job in a child of its own, and yield its number and its result.

    The result must be JSON; it is None if the job took too long or died. An error that a job
    raises is raised here.
    """
    waiting = list(enumerate(jobs))[::-1]
    with selectors.DefaultSelector() as selector:
        try:
            while waiting or selector.get_map():
                while waiting and _has_room(selector, processes):
                    child = _start(*waiting.pop())
                    selector.register(child.reply, selectors.EVENT_READ, child)
                for child in _finished(selector):
                    selector.unregister(child.reply)
                    _end(child)
                    result, error = json.loads(child.received or b"[null, null]")
                    if error is not None:
                        raise ChildFailed(error)
                    yield child.number, result
        finally:
            for key in list(selector.get_map().values()):
                _end(key.data)


def _has_room(selector: selectors.BaseSelector, processes: int) -> bool:
    """Return whether another child may start; children that only wait hardly count."""
    children: list[_Child] = [key.data for key in selector.get_map().values()]
    busy = sum(time.monotonic() - child.idle_since_s < 2 * LOOK_S for child in children)
    return busy < processes and len(children) < 4 * processes


def _start(number: int, job: Job) -> _Child:
    reply, answer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(answer)
        return _Child(number, pid, reply)
    try:
        os.setsid()
        os.close(reply)
        _be_quiet()
        limit = _address_space() + MEMORY_BYTES_MAX
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        computing_s = math.ceil(job.computing_s)
        resource.setrlimit(resource.RLIMIT_CPU, (computing_s, computing_s))
        try:
            result = json.dumps([job.function(), None]).encode()
        except Exception:  # noqa: BLE001 - It is raised in the parent.
            result = json.dumps([None, traceback.format_exc()]).encode()
        while result:
            result = result[os.write(answer, result) :]
    finally:
        os._exit(0)


def _be_quiet() -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)


def _address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def _finished(selector: selectors.BaseSelector) -> Iterator[_Child]:
    children: list[_Child] = [key.data for key in selector.get_map().values()]
    for key, _ in selector.select(LOOK_S):
        child: _Child = key.data
        read = os.read(child.reply, 1 << 16)
        child.received += read
        if not read:
            yield child
            children.remove(child)
    for child in list(children):
        if child.is_stuck():
            child.received = b""
            yield child


def _end(child: _Child) -> None:
    os.close(child.reply)
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        os.kill(child.pid, signal.SIGKILL)  # It does not lead a process group yet.
    os.waitpid(child.pid, 0)
