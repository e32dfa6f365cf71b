"""Assertions in the shared tests tell what they found, as those in test files do."""

import pytest

pytest.register_assert_rewrite("tests.sandbox.promises")
