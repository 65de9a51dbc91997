import pytest

from service.groups.patterns import check_pattern, matching
from storage.errors import InvalidRequest


def test_a_pattern_matches_whole_names() -> None:
    assert matching("orders-.*", ["orders-1", "my-orders-1", "orders"]) == ["orders-1"]


def test_no_pattern_runs_wild() -> None:
    # With backtracking this takes 2 ** 200 steps.
    assert matching("(a+)+b", ["a" * 200]) == []


@pytest.mark.parametrize("pattern", ["(", "(?=a)b", r"(a)\1", "(a{1000}){1000}"])
def test_says_what_it_cannot_match(pattern: str) -> None:
    with pytest.raises(InvalidRequest, match="topics_pattern: not a regular expression as RE2"):
        check_pattern(pattern)
