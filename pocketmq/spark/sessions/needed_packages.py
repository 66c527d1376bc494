"""Reports which package is missing, and in which Python: Spark's workers may run a different one
from the driver's, and need fewer packages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


class PackageMissing(ImportError):
    """A required package is not installed. The text says how to install it, and where."""

    def __init__(self, what: str, package: str) -> None:
        super().__init__(
            f"{what} needs the package {package}, which this Python does not have. Type: "
            f"{sys.executable} -m pip install {package}; or, where Spark's workers run it, set "
            "PYSPARK_PYTHON to another one",
            name=package,
        )


@contextlib.contextmanager
def needed_for(what: str) -> Iterator[None]:
    """Raise PackageMissing if an import in the block fails because a package is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "pocketmq"):
            raise
        raise PackageMissing(what, package) from error
