"""URLs of archives: `s3://`, `gs://`, `hdfs://`, `file://`, and others that PyArrow opens.

Credentials and endpoints come from the environment variables of the cloud's own tools, or from the
URL. No error or log line shows the parts of a URL that may be secret: its user, password and query.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from pyarrow import ArrowException, fs

from pocketmq.archive.errors import Unreachable, WrongLocation
from pocketmq.archive.objects import Objects, why

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_S3: Final = ("s3", "s3a", "s3n")
_GCS: Final = ("gs", "gcs")


def _is_true(text: str) -> bool:
    return text.lower() == "true"


_Readers = Mapping[str, Callable[[str], Any]]
# Parameters that a URL may have, and their parsers. They are arguments of S3FileSystem.
_S3_PARAMETERS: Final[_Readers] = {
    "region": str,
    "scheme": str,
    "endpoint_override": str,
    "anonymous": _is_true,
    "force_virtual_addressing": _is_true,
    "connect_timeout": float,
    "role_arn": str,
    "external_id": str,
    "tls_ca_file_path": str,
}
# The parameters of PyArrow's own URLs, and `anonymous` as for S3.
_GCS_PARAMETERS: Final[_Readers] = {
    "scheme": str,
    "endpoint_override": str,
    "anonymous": _is_true,
    "retry_limit_seconds": float,
}
_GCS_RETRY_SECONDS: Final = 60.0
"""The library's default is a quarter of an hour, even without credentials."""
_KNOWN: Final = "s3://, gs://, abfs://, hdfs:// and file://"


class Location:
    """A URL of archives. Small, and can be pickled.

    Attributes:
        shown: the URL without secrets.

    Raises:
        WrongLocation: the URL is not a valid location, or PyArrow does not support its scheme.
    """

    def __init__(self, url: str) -> None:
        self._url = url
        match = _SCHEME.match(url)
        if match is None:
            self._scheme = "file"
            self.shown = Path(url).expanduser().absolute().as_posix()
            return
        self._scheme = match[1].lower()
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        self.shown = f"{self._scheme}://{host}{parts.path.rstrip('/')}"
        if self._scheme != "file" and not (host or self._scheme == "hdfs"):
            raise WrongLocation(self.shown, f"names no bucket: write {self._scheme}://BUCKET/PATH")

    def __str__(self) -> str:
        return self.shown

    def __repr__(self) -> str:
        return f"Location({self.shown})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and self.shown == other.shown

    def __hash__(self) -> int:
        return hash(self.shown)

    @property
    def directory(self) -> Path | None:
        """The local directory; None for other schemes. Raises WrongLocation for a directory of
        another machine."""
        if self._scheme != "file":
            return None
        if not _SCHEME.match(self._url):
            return Path(self.shown)
        parts = urlsplit(self._url)
        if parts.netloc not in ("", "localhost"):
            raise WrongLocation(self.shown, f"names the machine {parts.netloc}: write file:///PATH")
        return Path(unquote(parts.path))

    def open(self, environment: Mapping[str, str] = os.environ) -> Objects:
        """Return the objects at the location. Sends no requests, except those of the library to
        find the region.

        Raises:
            WrongLocation, Unreachable: it cannot be opened; the text says why.
        """
        try:
            system, path = self._opened(environment)
        except (ArrowException, OSError, ValueError, TypeError) as error:
            raise self._refused(error) from None
        return Objects(system, path.rstrip("/"), self.shown)

    def _opened(self, environment: Mapping[str, str]) -> tuple[Any, str]:
        if self._scheme in _S3:
            return self._s3(environment)
        if self._scheme in _GCS:
            return self._gcs()
        if self.directory is not None:
            return fs.LocalFileSystem(), str(self.directory)
        system, path = fs.FileSystem.from_uri(self._url)
        return system, path

    def _s3(self, environment: Mapping[str, str]) -> tuple[Any, str]:
        parts = urlsplit(self._url)
        options = self._parameters(parts.query, _S3_PARAMETERS)
        if parts.username:
            options["access_key"] = unquote(parts.username)
            options["secret_key"] = unquote(parts.password or "")
        for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
            endpoint = environment.get(name)
            if endpoint and "endpoint_override" not in options:
                scheme, _, host = endpoint.rpartition("://")
                options["endpoint_override"] = host.rstrip("/")
                options.setdefault("scheme", scheme or "https")
        region = environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION")
        if region:
            options.setdefault("region", region)
        elif "endpoint_override" in options:  # otherwise the library would ask Amazon
            options.setdefault("region", "us-east-1")
        bucket = parts.netloc.rpartition("@")[2]
        if "region" not in options:
            options["region"] = fs.resolve_s3_region(bucket)
        # Then a small object takes one request instead of three.
        return fs.S3FileSystem(**options, allow_delayed_open=True), bucket + unquote(parts.path)

    def _gcs(self) -> tuple[Any, str]:
        parts = urlsplit(self._url)
        options = self._parameters(parts.query, _GCS_PARAMETERS)
        user, _, bucket = parts.netloc.rpartition("@")
        if user not in ("", "anonymous"):
            raise WrongLocation(
                self.shown,
                "has a user other than `anonymous`: credentials of Google are a file, which "
                "GOOGLE_APPLICATION_CREDENTIALS names",
            )
        if user:
            options["anonymous"] = True
        seconds = options.pop("retry_limit_seconds", _GCS_RETRY_SECONDS)
        system = fs.GcsFileSystem(**options, retry_time_limit=timedelta(seconds=seconds))
        return system, bucket + unquote(parts.path)

    def _parameters(self, query: str, known: _Readers) -> dict[str, Any]:
        """Return the parameters of the URL. Raises WrongLocation, ValueError."""
        found: dict[str, Any] = {}
        for name, text in parse_qsl(query, keep_blank_values=True):
            if name not in known:
                raise WrongLocation(
                    self.shown,
                    f"has the parameter {name!r}, which does not exist; there are "
                    f"{', '.join(known)}",
                )
            found[name] = known[name](text)
        return found

    def _refused(self, error: Exception) -> Exception:
        if isinstance(error, WrongLocation):
            return error
        text = str(error)
        if "Unrecognized filesystem type" in text or isinstance(error, NotImplementedError):
            return WrongLocation(self.shown, f"cannot be opened by PyArrow, which opens {_KNOWN}")
        if isinstance(error, OSError):
            return Unreachable(f"{self.shown}: {why(error)}")
        return WrongLocation(self.shown, f"cannot be opened: {_without(text, self._url)}")


def _without(text: str, url: str) -> str:
    """Return an error text of PyArrow, which may quote the whole URL, without it."""
    return text.replace(url, "the URL") if url in text else text
