"""Reads from brokers and writes to brokers over TLS, as Spark's workers call them, without Spark.

The servers listen on 127.0.0.2, without TLS. In front of each is one that encrypts, on the same
port of 127.0.0.1, which is the address that clients are told.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pyarrow as pa
import pytest

from pocketmq.embedded import EmbeddedServer
from tests.encrypting import Encrypting
from tests.interop.harness.certificate import Certificate, make_certificate
from tests.interop.harness.official import Unavailable
from tests.store.made_store import rows_of

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from pocketmq.spark.live.errors import BrokersNotRead
from pocketmq.spark.options.writer_options import WriterOptions
from pocketmq.spark.rows import Rows
from pocketmq.spark.source import RocketMQDataSource
from pocketmq.spark.writing.row_sender import RowsNotSent, send_rows

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="needs the address 127.0.0.2"
)
BODY = StructType([StructField("body", BinaryType())])
HIDDEN, SHOWN = "127.0.0.2", "127.0.0.1"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Certificate:
    try:
        return make_certificate(tmp_path_factory.mktemp("certificate"))
    except Unavailable as missing:
        pytest.skip(str(missing))


@pytest.fixture(scope="module")
def namesrv(certificate: Certificate) -> Iterator[str]:
    """A name server and a broker that take nothing but clients with the certificate."""
    ready: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        done = asyncio.Event()
        fronts = [Encrypting(certificate, (HIDDEN, 0), mutual=True) for _ in range(2)]
        # First, since the address that others use has fewer free ports.
        for front in fronts:
            await front.start()
        namesrv, broker = (front.port for front in fronts)
        async with EmbeddedServer(
            bind=HIDDEN, advertise=SHOWN, namesrv_port=namesrv, listen_port=broker
        ):
            ready.set_result((fronts[0].address, asyncio.get_running_loop(), done))
            await done.wait()
            for front in fronts:
                await front.stop()

    with ThreadPoolExecutor(1) as thread:
        served = thread.submit(asyncio.run, serve())
        futures: list[Future[Any]] = [ready, served]
        wait(futures, return_when=FIRST_COMPLETED)
        if served.done():  # by an error
            served.result()
        address, loop, done = ready.result(timeout=0)
        yield address
        loop.call_soon_threadsafe(done.set)
        served.result()


def files(certificate: Certificate) -> dict[str, str]:
    return {
        "tlsCaFile": str(certificate.chain),
        "tlsCertFile": str(certificate.chain),
        "tlsKeyFile": str(certificate.key),
    }


def write(namesrv: str, **options: str) -> int:
    given = {"namesrv": namesrv, "topic": "T", **options}
    parsed = WriterOptions.parse(given, streaming=False)
    batch = pa.RecordBatch.from_pydict({"body": [b"%d" % number for number in range(100)]})
    return send_rows(iter([batch]), Rows("T", most_messages=50, most_bytes=1 << 20), parsed)


def test_writes_and_reads(namesrv: str, certificate: Certificate) -> None:
    assert write(namesrv, **files(certificate)) == 100
    source = RocketMQDataSource({"namesrv": namesrv, "subscribe": "T", **files(certificate)})
    reader = source.reader(BODY)
    found = [
        int(row["body"])
        for partition in reader.partitions()
        for row in rows_of(reader.read(partition))
    ]
    assert sorted(found) == list(range(100))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ((), "no name server"),
        (("tlsCertFile", "tlsKeyFile"), "certificate verify failed"),
        (("tlsCaFile",), "no name server"),
    ],
)
def test_without_the_right_files(
    namesrv: str, certificate: Certificate, given: tuple[str, ...], reason: str
) -> None:
    options = {name: path for name, path in files(certificate).items() if name in given}
    with pytest.raises(RowsNotSent, match=reason):
        write(namesrv, **options, retries="0", timeout="1")
    source = RocketMQDataSource({"namesrv": namesrv, "timeout": "1", **options})
    with pytest.raises(BrokersNotRead, match=reason):
        source.reader(BODY).partitions()
