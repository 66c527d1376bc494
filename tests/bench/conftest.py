"""What tests of benchmarks share."""

from __future__ import annotations

import pytest

from bench.generator import LoadGenerator
from tests.interop.harness.official import Unavailable


@pytest.fixture(scope="session")
def generator(tmp_path_factory: pytest.TempPathFactory) -> LoadGenerator:
    """The load generator, compiled."""
    try:
        return LoadGenerator.build(tmp_path_factory.mktemp("loadgen"))
    except Unavailable as missing:
        pytest.skip(str(missing))
