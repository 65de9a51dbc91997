import pytest

from service.http.json_requests import check_json
from storage.errors import UnsupportedMediaType


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "Application/JSON; charset=utf-8"]
)
def test_json_and_requests_without_a_content_type_are_accepted(content_type: str | None) -> None:
    check_json(content_type)


@pytest.mark.parametrize("content_type", ["application/x-www-form-urlencoded", "text/plain"])
def test_other_content_types_are_refused_with_the_right_one(content_type: str) -> None:
    with pytest.raises(UnsupportedMediaType, match="send application/json"):
        check_json(content_type)
