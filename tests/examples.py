"""How many examples Hypothesis tries. Which ones is for the profile to say (tests/conftest.py)."""

from hypothesis import settings

few = settings(max_examples=30)
some = settings(max_examples=100)
