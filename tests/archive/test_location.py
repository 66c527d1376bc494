"""URLs of archives."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pocketmq.archive.errors import ArchiveError, ObjectMissing, WrongLocation
from pocketmq.archive.location import Location
from tests.archive.conftest import Bucket


def test_s3a_is_s3(bucket: Bucket) -> None:
    bucket.put("a/b", b"content")
    for scheme in ("s3", "s3a", "S3A"):
        assert Location(f"{scheme}://{bucket.name}/a").open().read("b") == b"content"


def test_endpoint_and_credentials_can_stand_in_the_url(
    bucket: Bucket, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.put("a/b", b"content")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    host = s3_endpoint.removeprefix("http://")
    url = f"s3://me:hush@{bucket.name}/a?endpoint_override={host}&scheme=http"
    location = pickle.loads(pickle.dumps(Location(url)))
    assert location.open().read("b") == b"content"
    with pytest.raises(ObjectMissing) as raised:
        location.open().read("c")
    for text in (str(location), repr(location), str(raised.value)):
        assert f"s3://{bucket.name}/a" in text
        assert "hush" not in text
        assert host not in text


@pytest.mark.parametrize("form", ["{}", "file://{}", "file://localhost{}"])
def test_paths_and_file_urls_are_the_same(tmp_path: Path, form: str) -> None:
    directory = tmp_path / "with a blank"
    directory.mkdir()
    (directory / "b").write_bytes(b"content")
    text = str(directory)
    url = form.format(text.replace(" ", "%20") if "file" in form else text)
    assert Location(url).open().read("b") == b"content"


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        (
            "ftp://host/path",
            "ftp://host/path cannot be opened by PyArrow, which opens s3://, gs://",
        ),
        ("s3:///path", "names no bucket: write s3://BUCKET/PATH"),
        ("s3://b/p?color=red", "has the parameter 'color', which does not exist; there are region"),
        ("file://elsewhere/path", "names the machine elsewhere"),
    ],
)
def test_other_urls_are_refused(url: str, reason: str) -> None:
    with pytest.raises(WrongLocation, match=reason):
        Location(url).open()


def test_an_error_of_another_scheme_does_not_show_its_secrets() -> None:
    with pytest.raises(ArchiveError) as raised:
        Location("ftp://me:hush@host/path?key=hush").open()
    assert "hush" not in str(raised.value)
