"""URLs of archives."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from pocketmq.archive.errors import ArchiveError, ObjectMissing, WrongLocation
from pocketmq.archive.location import Location
from tests.archive.conftest import GcsBucket, S3Bucket


def test_s3a_is_s3(s3_bucket: S3Bucket) -> None:
    s3_bucket.put("a/b", b"content")
    for scheme in ("s3", "s3a", "S3A"):
        assert Location(f"{scheme}://{s3_bucket.name}/a").open().read("b") == b"content"


def test_endpoint_and_credentials_can_stand_in_the_url(
    s3_bucket: S3Bucket, s3_endpoint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3_bucket.put("a/b", b"content")
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.delenv(name)
    host = s3_endpoint.removeprefix("http://")
    url = f"s3://me:hush@{s3_bucket.name}/a?endpoint_override={host}&scheme=http"
    location = pickle.loads(pickle.dumps(Location(url)))
    assert location.open().read("b") == b"content"
    with pytest.raises(ObjectMissing) as raised:
        location.open().read("c")
    for text in (str(location), repr(location), str(raised.value)):
        assert f"s3://{s3_bucket.name}/a" in text
        assert "hush" not in text
        assert host not in text


def test_endpoint_of_google_can_stand_in_the_url(gcs_bucket: GcsBucket, gcs_endpoint: str) -> None:
    gcs_bucket.put("a/b", b"content")
    host = gcs_endpoint.removeprefix("http://")
    server = f"endpoint_override={host}&scheme=http"
    for url in (
        f"gs://anonymous@{gcs_bucket.name}/a?{server}",
        f"GCS://{gcs_bucket.name}/a/?{server}&anonymous=true&retry_limit_seconds=3",
    ):
        location = pickle.loads(pickle.dumps(Location(url)))
        assert location.open().read("b") == b"content"
        with pytest.raises(ObjectMissing) as raised:
            location.open().read("c")
        assert (
            str(raised.value).lower()
            == f"{url.partition(':')[0].lower()}://{gcs_bucket.name}/a/c is missing"
        )


def test_folders_of_google_are_known_by_their_objects(gcs_bucket: GcsBucket) -> None:
    for key in ("a/x/b/c", "a/y/d", "a/e", "ab/z/f"):
        gcs_bucket.put(key, b"content")
    assert Location(gcs_bucket.url("a")).open().folders() == ["x", "y"]
    assert Location(gcs_bucket.url("")).open().folders() == ["a", "ab"]
    assert Location(gcs_bucket.url("none")).open().folders() == []


def test_credentials_of_google_that_are_missing(
    gcs_bucket: GcsBucket, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    with pytest.raises(ArchiveError, match="credentials"):
        Location(f"gs://{gcs_bucket.name}/a{gcs_bucket.query}").open().read("b")


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
        ("gs://b/p?color=red", "has the parameter 'color', which does not exist; there are scheme"),
        ("gs://me:hush@b/p", "gs://b/p has a user other than `anonymous`"),
        ("gs:///p", "names no bucket: write gs://BUCKET/PATH"),
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
