"""What a client speaks is told from its first bytes, and a mistake is logged once in a while."""

import logging

import pytest

from service.process.wrong_protocol import (
    KEPT_MAX,
    LOGGED_EVERY_S,
    Mistakes,
    Spoken,
    spoken,
)


@pytest.mark.parametrize(
    ("head", "kind"),
    [
        (b"GET / HT", Spoken.HTTP),
        (b"POST /v1", Spoken.HTTP),
        (b"PRI * HT", Spoken.HTTP),
        (b"\x16\x03\x01\x02\0\x01\0\x01", Spoken.TLS),
        (b"\0\0\0\x20\0\x12\0\x04", Spoken.KAFKA),
        (b"\0\0\0\x20\0\x03\0\x0c", Spoken.KAFKA),
        (b"\0\0\0\x20\0\x12\0", None),
        (b"\0\0\0\x04\0\x12\0\x04", None),
        (b"\0\x10\0\x20\0\x12\0\x04", None),
        (b"\0\0\0\x20\0\x63\0\x04", None),
        (b"\0\0\0\x20\0\x12\x7f\xff", None),
        (b"SSH-2.0-", None),
        (b"", None),
    ],
)
def test_the_first_bytes_tell_what_a_client_speaks(head: bytes, kind: Spoken | None) -> None:
    assert spoken(head) is kind


class Clock:
    now_s = 0.0


def test_a_mistake_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    mistakes = Mistakes(lambda: clock.now_s)

    def logged() -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING, "riacho.connections"):
            for host in ("10.0.0.1", "10.0.0.1", "10.0.0.2", ""):
                mistakes.note(host, "speaks Latin")
        return [record.getMessage() for record in caplog.records]

    each = [
        "a client at 10.0.0.1 speaks Latin",
        "a client at 10.0.0.2 speaks Latin",
        "a client speaks Latin",
    ]
    assert logged() == each
    clock.now_s = LOGGED_EVERY_S - 1
    assert logged() == []
    clock.now_s = LOGGED_EVERY_S
    assert logged() == each


def test_mistakes_of_many_addresses_take_bounded_memory() -> None:
    mistakes = Mistakes(lambda: 0.0)
    for number in range(2 * KEPT_MAX + 1):
        mistakes.note(str(number), "speaks Latin")
    assert mistakes.kept_count <= KEPT_MAX
