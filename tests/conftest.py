"""What every test shares."""

from pathlib import Path

import pytest
from hypothesis import settings

# A deadline per example would be an assertion on speed: it fails on a busy machine.
settings.register_profile("pocketmq", deadline=None)
settings.load_profile("pocketmq")

_HERE = Path(__file__).parent


# Before the plugin itself, which reads the marks in the hook of the same name.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``-n``, the tests of one file stay together, and those of one directory where they share
    what takes long to start: the official servers, or a Spark session."""
    for item in items:
        file = item.path.relative_to(_HERE)
        shared = file.parts[0] in ("interop", "datasource")
        item.add_marker(pytest.mark.xdist_group(file.parts[0] if shared else str(file)))
