"""Archives in HDFS, and what is said where its client is not installed.

POCKETMQ_HDFS names an empty directory of a running cluster, such as hdfs://127.0.0.1:9000/test.
PyArrow then needs JAVA_HOME, CLASSPATH, and HADOOP_HOME or ARROW_LIBHDFS_DIR.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pocketmq.archive.errors import NoArchive, ObjectDamaged, ObjectMissing
from pocketmq.archive.location import Location
from pocketmq.archive.manifest import read_manifest
from pocketmq.archive.open_store import open_store
from pocketmq.archive.sync import sync
from pocketmq.archive.verify import verify
from tests.archive.conftest import PROJECT, fill
from tests.store.made_store import NOW, MadeStore

CLUSTER = os.environ.get("POCKETMQ_HDFS", "")

OPEN = """
from pocketmq.archive.errors import Unreachable
from pocketmq.archive.location import Location

for _ in range(2):  # PyArrow says less the second time
    try:
        Location("hdfs://127.0.0.1:1/archives").open()
    except Unreachable as error:
        print(error)
"""


@pytest.mark.parametrize("java", [None, "/none"])
def test_without_its_client_the_error_says_what_to_install(
    tmp_path: Path, java: str | None
) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "HADOOP_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", OPEN],
        env=kept | {"ARROW_LIBHDFS_DIR": str(tmp_path)} | ({"JAVA_HOME": java} if java else {}),
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.splitlines()
    assert len(said) == 2
    for line in said:
        assert line.startswith("hdfs://127.0.0.1:1/archives: HDFS needs Java and Hadoop's client")
        assert "set JAVA_HOME, HADOOP_HOME (with lib/native/libhdfs.so below it) and CLASS" in line


@pytest.mark.skipif(not CLUSTER, reason="set POCKETMQ_HDFS to an empty directory of a cluster")
def test_an_archive_in_hdfs(made: Callable[..., MadeStore]) -> None:
    store = made()
    store.write()
    with pytest.raises(NoArchive):
        open_store(CLUSTER)
    archives = Location(CLUSTER).open()
    first = sync(store.root, archives, clock=lambda: NOW)
    fill(store, 100)
    store.write()
    second = sync(store.root, archives, everything=True, clock=lambda: NOW)
    assert (first.messages + second.messages, second.begin) == (200, 0)
    rows = open_store(CLUSTER).to_arrow().sort_by("physicalOffset").to_pylist()
    assert rows == open_store(store.root).to_arrow().sort_by("physicalOffset").to_pylist()

    broker = archives.under("broker-a")
    manifest = read_manifest(broker)
    assert manifest is not None
    assert not verify(broker, manifest)
    part = manifest.parts[1]
    content = broker.read(part.log.name)
    with broker.written(part.log.name) as file:
        file.write(content[:-1])
    with pytest.raises(ObjectDamaged, match=f"{part.log.name} is damaged: it has 4095 bytes"):
        open_store(CLUSTER).to_arrow()
    broker.delete(part.log.name)
    with pytest.raises(ObjectMissing, match=f"{part.log.name} is missing"):
        open_store(CLUSTER).to_arrow()
    left = open_store(CLUSTER).to_arrow(fail_on_data_loss=False)
    assert left.num_rows == 200 - part.messages
