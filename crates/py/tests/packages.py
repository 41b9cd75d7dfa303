"""Packages that some of the tests need."""

import importlib
import os
from types import ModuleType

import pytest


def needed(*names: str) -> list[ModuleType]:
    """The packages; without one the test is skipped, which CI does not allow."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"not installed: {error.name}")
