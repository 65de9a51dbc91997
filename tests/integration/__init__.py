import pytest

pytest.register_assert_rewrite("tests.integration.load", "tests.integration.processes")
