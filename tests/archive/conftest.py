"""An S3 server on loopback, and stores to archive there."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pocketmq.archive.location import Location
from pocketmq.archive.objects import Objects
from tests.store.made_store import MadeStore

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "top-secret"}


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3 server, as `http://HOST:PORT`."""
    server = pytest.importorskip("moto.server", reason="pip install 'moto[s3,server]'")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    running = server.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


class Bucket:
    """A bucket of the S3 server, and its objects by their keys."""

    def __init__(self, client: Any, name: str) -> None:
        self.name = name
        self._client = client

    def names(self) -> list[str]:
        found = self._client.list_objects_v2(Bucket=self.name)
        keys = sorted(each["Key"] for each in found.get("Contents", ()))
        return [key for key in keys if not key.endswith("/")]  # that is how S3 shows folders

    def get(self, key: str) -> bytes:
        content: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return content

    def put(self, key: str, content: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=content)

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)


@pytest.fixture
def bucket(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Bucket:
    """A new bucket, and credentials for it in the environment."""
    import boto3

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    name = f"b{abs(hash(request.node.nodeid))}"
    client.create_bucket(Bucket=name)
    return Bucket(client, name)


@pytest.fixture
def archives(bucket: Bucket) -> Objects:
    """A place for archives in the bucket."""
    return Location(f"s3://{bucket.name}/archives").open()


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., MadeStore]:
    """Makes a store of a broker, named as its directory."""

    def make(messages: int = 100, name: str = "broker-a") -> MadeStore:
        store = MadeStore(tmp_path / name, segment_size=4096)
        fill(store, messages)
        return store

    return make


def fill(store: MadeStore, messages: int) -> None:
    """Put messages into the four queues of two topics."""
    for number in range(messages):
        store.put(
            "orders" if number % 3 else "paid",
            number % 2,
            b"message %d" % number,
            {"TAGS": f"tag{number % 5}", "KEYS": f"k{number}"},
        )
