import pytest

from service.http.json_requests import check_json
from storage.errors import UnsupportedMediaType


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "Application/JSON; charset=utf-8"]
)
def test_takes_json_and_what_says_nothing(content_type: str | None) -> None:
    check_json(content_type)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain"])
def test_says_what_to_send_instead(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="send application/json"):
        check_json(content_type)
