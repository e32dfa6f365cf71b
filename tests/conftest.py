"""What holds for all tests: how long an example takes says nothing about the code."""

from hypothesis import settings

settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")
