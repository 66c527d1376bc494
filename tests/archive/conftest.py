"""Servers of S3 and Google Cloud Storage on loopback, and stores to archive there."""

from __future__ import annotations

import http.client
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

import pytest

from pocketmq.archive.location import Location
from pocketmq.archive.objects import Objects
from tests.store.made_store import MadeStore

PROJECT = Path(__file__).parents[2]
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


@pytest.fixture(scope="session")
def gcs_endpoint() -> Iterator[str]:
    """The address of a server of Google Cloud Storage, as `http://HOST:PORT`."""
    pytest.importorskip("gcp_storage_emulator", reason="pip install gcp-storage-emulator")
    with subprocess.Popen(
        [sys.executable, "-m", "tests.archive.gcs_server"],
        cwd=PROJECT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a line for each request
        text=True,
    ) as server:
        assert server.stdout is not None
        port = server.stdout.readline().strip()
        assert port, "the server did not start"
        yield f"http://127.0.0.1:{port}"
        server.communicate()


class Bucket(Protocol):
    """A bucket of a server, and its objects by their keys.

    Attributes:
        shown: its URL, as errors show it.
        query: what a URL needs besides, from `?` on.
    """

    name: str
    shown: str
    query: str

    def url(self, path: str) -> str:
        """Return a URL to open."""

    def names(self) -> list[str]: ...

    def get(self, key: str) -> bytes: ...

    def put(self, key: str, content: bytes) -> None: ...

    def delete(self, key: str) -> None: ...


class S3Bucket:
    """A bucket of the S3 server. The environment says where that is."""

    query = ""

    def __init__(self, client: Any, name: str) -> None:
        self.name = name
        self.shown = f"s3://{name}"
        self._client = client

    def url(self, path: str) -> str:
        return f"{self.shown}/{path}"

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


class GcsBucket:
    """A bucket of the server of Google Cloud Storage."""

    def __init__(self, endpoint: str, name: str) -> None:
        self.name = name
        self.shown = f"gs://{name}"
        self._host = urlsplit(endpoint).netloc
        self.query = f"?scheme=http&endpoint_override={self._host}&retry_limit_seconds=2"
        self._ask("POST", "/storage/v1/b", json.dumps({"name": name}).encode(), "json")

    def url(self, path: str) -> str:
        return f"gs://anonymous@{self.name}/{path}{self.query}"

    def names(self) -> list[str]:
        found = json.loads(self._ask("GET", f"/storage/v1/b/{self.name}/o"))
        return sorted(each["name"] for each in found.get("items", ()))

    def get(self, key: str) -> bytes:
        return self._ask("GET", f"{self._object(key)}?alt=media")

    def put(self, key: str, content: bytes) -> None:
        where = f"/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(key, safe='')}"
        self._ask("POST", where, content)

    def delete(self, key: str) -> None:
        self._ask("DELETE", self._object(key))

    def _object(self, key: str) -> str:
        return f"/storage/v1/b/{self.name}/o/{quote(key, safe='')}"

    def _ask(
        self, method: str, where: str, content: bytes = b"", kind: str = "octet-stream"
    ) -> bytes:
        connection = http.client.HTTPConnection(self._host)
        connection.request(method, where, content, {"Content-Type": f"application/{kind}"})
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        assert answer.status < 300, (method, where, answer.status, body)
        return body


def _name(request: pytest.FixtureRequest) -> str:
    return f"b{abs(hash(request.node.nodeid))}"


@pytest.fixture
def s3_bucket(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> S3Bucket:
    """A new bucket, and credentials for it in the environment."""
    import boto3

    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    client = boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1")
    name = _name(request)
    client.create_bucket(Bucket=name)
    return S3Bucket(client, name)


@pytest.fixture
def gcs_bucket(gcs_endpoint: str, request: pytest.FixtureRequest) -> GcsBucket:
    """A new bucket, which anyone may use."""
    return GcsBucket(gcs_endpoint, _name(request))


@pytest.fixture(params=["s3", "gs"])
def bucket(request: pytest.FixtureRequest) -> Bucket:
    """A new bucket in each object store that is here."""
    found: Bucket = request.getfixturevalue({"s3": "s3_bucket", "gs": "gcs_bucket"}[request.param])
    return found


@pytest.fixture
def archives(bucket: Bucket) -> Objects:
    """A place for archives in the bucket."""
    return Location(bucket.url("archives")).open()


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
