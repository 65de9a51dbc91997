"""How many examples Hypothesis tries: the same ones in every run, on a busy machine too."""

from hypothesis import settings

few = settings(max_examples=30, derandomize=True, deadline=None)
some = settings(max_examples=100, derandomize=True, deadline=None)
