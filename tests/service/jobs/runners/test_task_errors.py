"""Errors of tasks on their way to the driver, as text in the text of Spark's error."""

import base64
import pickle
from pathlib import Path

import pytest

from service.jobs.runners.runners import TaskFailed
from service.jobs.runners.spark_runner import _packed, _raised
from storage.errors import HeadMissing, OffsetOutOfRange, RiachoError, StoreUnavailable


def of_spark(text: str) -> RuntimeError:
    return RuntimeError(f"Job aborted:\n  File x, in run\nPythonException: {text}\n\tat java")


@pytest.mark.parametrize("error", [StoreUnavailable("away: é <>"), TaskFailed(""), RiachoError(7)])
def test_an_error_arrives_as_it_left(error: RiachoError) -> None:
    found = _raised(of_spark(f"riacho-error<{_packed(error)}> and more"))

    assert (type(found), found.args) == (type(error), error.args)


@pytest.mark.parametrize("error", [OffsetOutOfRange(7, 0, 5), HeadMissing("t", "head/1/0")])
def test_an_error_that_needs_more_than_its_text_arrives_as_a_failure(error: RiachoError) -> None:
    found = _raised(of_spark(f"riacho-error<{_packed(error)}>"))

    assert str(error) in str(found)


class Exploit:
    """Creates a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAA",
        "====",
        base64.b64encode(b"null").decode(),
        base64.b64encode(b'["Path", ["/tmp/x"]]').decode(),
        base64.b64encode(b'["StoreUnavailable", [{}]]').decode(),
        base64.b64encode(b'["OffsetOutOfRange", []]').decode(),
        base64.b64encode(b"[" * 5000).decode(),
    ],
)
def test_text_of_others_is_no_error_of_a_task(text: str) -> None:
    # A message may quote what a client has sent.
    found = _raised(of_spark(f"invalid value riacho-error<{text}>"))

    assert type(found) is TaskFailed


def test_nothing_is_run_that_a_message_contains(tmp_path: Path) -> None:
    made = tmp_path / "made"
    packed = base64.b64encode(pickle.dumps(Exploit(made))).decode()

    assert type(_raised(of_spark(f"invalid value riacho-error<{packed}>"))) is TaskFailed

    assert not made.exists()
