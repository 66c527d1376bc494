"""The installed Spark, with the Python part of it as files and not as an archive.

From the archive, each of Spark's Python processes compiles all of PySpark, which takes most of its
time to start. A stream fails if one of them needs more than 10 s, as on a busy machine.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def unpacked_home(home: Path) -> Path:
    """Make `home` a place that SPARK_HOME can name, of links; return it."""
    installed = find_spec("pyspark")
    assert installed is not None
    assert installed.origin is not None
    spark = Path(installed.origin).parent
    packages = home / "python" / "lib"
    packages.mkdir(parents=True)
    for path in spark.iterdir():
        if path.name != "python":
            (home / path.name).symlink_to(path)
    for path in (spark / "python" / "lib").iterdir():
        if path.name == "pyspark.zip":
            # A directory of this name has what was compiled when PySpark was installed.
            (packages / path.name).mkdir()
            (packages / path.name / "pyspark").symlink_to(spark)
        else:
            (packages / path.name).symlink_to(path)
    return home
