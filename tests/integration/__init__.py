import pytest

pytest.register_assert_rewrite(
    *(
        f"tests.integration.{name}"
        for name in ("cheated", "copiers", "load", "processes", "tidying", "tidying_load")
    )
)
