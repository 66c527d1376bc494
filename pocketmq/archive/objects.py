"""Reads and writes the objects under one URL. Only this module sends requests to a server."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

from pyarrow import ArrowException, fs

from pocketmq.archive.errors import ObjectMissing, Unreachable

_NO_HDFS: Final = (
    "HDFS needs Java and Hadoop's client, and one of them was not found: install both, set "
    "JAVA_HOME, HADOOP_HOME (with lib/native/libhdfs.so below it) and CLASSPATH (to what `hadoop "
    "classpath --glob` prints), and start again"
)
# PyArrow's error texts, and their meaning for people.
_REASONS: Final = (
    ("NO_SUCH_BUCKET", "there is no such bucket"),
    ("does not exist in bucket", "it does not exist"),
    ("ACCESS_DENIED", "access is refused; check the credentials and what they may do"),
    ("HTTP status 403", "access is refused; check the credentials and what they may do"),
    ("INVALID_ACCESS_KEY_ID", "the access key is not known there; check the credentials"),
    ("INVALID_CLIENT_TOKEN_ID", "the access key is not known there; check the credentials"),
    ("SIGNATURE_DOES_NOT_MATCH", "the secret key is wrong; check the credentials"),
    ("EXPIRED_TOKEN", "the credentials have expired"),
    ("MISSING_AUTHENTICATION_TOKEN", "there are no credentials"),
    ("NETWORK_CONNECTION", "no server answers; check the endpoint and the network"),
    (
        "Could not create a OAuth2 access token",
        "there are no credentials of Google; set "
        "GOOGLE_APPLICATION_CREDENTIALS, or write gs://anonymous@BUCKET/PATH",
    ),
    ("UNAUTHENTICATED", "the credentials are not accepted"),
    ("PERMISSION_DENIED", "access is refused; check the credentials and what they may do"),
    ("Could not connect to server", "no server answers; check the endpoint and the network"),
    ("Could not resolve hostname", "no server answers; check the endpoint and the network"),
    ("Couldn't connect", "no server answers; check the endpoint and the network"),
    # Java is missing, Hadoop is missing, or either was missing at an earlier attempt.
    ("Unable to load libjvm", _NO_HDFS),
    ("Unable to load libhdfs", _NO_HDFS),
    ("Prior attempt to load libhdfs failed", _NO_HDFS),
    ("[errno 255]", "HDFS does not answer, or refuses; its client has written why to stderr"),
)
# A rename replaces a file atomically; object stores show an object only when it is complete.
_RENAMING: Final = ("local", "hdfs")
NEW: Final = ".new"
"""The suffix of a file that is about to replace another."""


class Objects:
    """The objects under one URL, by their names (paths below it).

    Args:
        system: a `pyarrow.fs.FileSystem`.
        path: the path in it.
        shown: the URL for errors.

    Raises:
        Unreachable: raised by all methods if no server answers, or it refuses.
    """

    def __init__(self, system: Any, path: str, shown: str) -> None:
        self._system = system
        self._path = path
        self.shown = shown

    def under(self, name: str) -> Objects:
        """Return the objects of a folder."""
        return Objects(self._system, f"{self._path}/{name}", f"{self.shown}/{name}")

    def url(self, name: str) -> str:
        """Return the URL of an object for errors."""
        return f"{self.shown}/{name}"

    def folders(self) -> list[str]:
        """Return the names of the folders, in order; empty if the location does not exist."""
        # In Google's storage, PyArrow finds only folders that it has created itself, as empty
        # objects.
        by_objects = self._system.type_name == "gcs"
        selector = fs.FileSelector(self._path, allow_not_found=True, recursive=by_objects)
        with self._asking(""):
            found = self._system.get_file_info(selector)
            if not found and self._system.type_name == "hdfs":
                # If no name node answers, PyArrow reports everything as missing, unless it opens a
                # file.
                with contextlib.suppress(FileNotFoundError):
                    self._system.open_input_file(f"{self._path}/none").close()
        if not by_objects:
            return sorted(info.base_name for info in found if info.type == fs.FileType.Directory)
        names = (info.path[len(self._path) :].lstrip("/") for info in found)
        return sorted({name.partition("/")[0] for name in names if "/" in name})

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it is missing."""
        with self._asking(name):
            info = self._system.get_file_info(f"{self._path}/{name}")
        return int(info.size) if info.type == fs.FileType.File else None

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return a whole small object, or its first `most` bytes. Raises ObjectMissing."""
        with self._asking(name), self._system.open_input_file(f"{self._path}/{name}") as file:
            content: bytes = file.read(most)
        return content

    @contextlib.contextmanager
    def opened(self, name: str) -> Iterator[Any]:
        """Return an object as a `pyarrow.NativeFile` whose `read_at` is thread-safe. Raises
        ObjectMissing."""
        with self._asking(name), self._system.open_input_file(f"{self._path}/{name}") as file:
            yield file

    def open(self, name: str) -> Any:
        """Do as `opened`, for files that stay open."""
        with self._asking(name):
            return self._system.open_input_file(f"{self._path}/{name}")

    def size_of(self, file: Any, name: str) -> int:
        """Return the size of an open object in bytes."""
        if self._system.type_name == "gcs":  # its file would fetch the whole object for this
            return self.size(name) or 0
        with self._asking(name):
            return int(file.size())

    def read_range(self, file: Any, name: str, at: int, count: int) -> Any:
        """Return `count` bytes (or fewer, at the end) of an object that `open` has opened."""
        with self._asking(name):
            return file.read_at(count, at)

    @contextlib.contextmanager
    def written(self, name: str) -> Iterator[Any]:
        """Return a stream that writes an object. After an error the object is missing or
        incomplete."""
        path = f"{self._path}/{name}"
        with self._asking(name, writing=True):
            self._make_folder(path)
            stream = self._system.open_output_stream(path)
        try:
            with self._asking(name, writing=True):
                yield stream
        except BaseException:
            with contextlib.suppress(Exception):  # the first error counts
                stream.close()
            raise
        with self._asking(name, writing=True):
            stream.close()

    def replace(self, name: str, content: bytes) -> None:
        """Write a small object, which replaces an older one atomically.

        In HDFS the object is missing for a moment. A process killed at that moment leaves it under
        the name with the suffix `NEW`.
        """
        if self._system.type_name not in _RENAMING:
            with self.written(name) as stream:
                stream.write(content)
            return
        with self.written(f"{name}{NEW}") as stream:
            stream.write(content)
        with self._asking(name):
            path = f"{self._path}/{name}"
            if self._system.type_name == "hdfs":  # its rename replaces nothing
                self.delete(name)
            self._system.move(f"{path}{NEW}", path)

    def delete(self, name: str) -> None:
        """Remove an object, if it exists."""
        # HDFS reports a missing file as an I/O error.
        if self._system.type_name == "hdfs" and self.size(name) is None:
            return
        with self._asking(name), contextlib.suppress(FileNotFoundError):
            self._system.delete_file(f"{self._path}/{name}")

    def _make_folder(self, path: str) -> None:
        if self._system.type_name in _RENAMING:
            self._system.create_dir(path.rpartition("/")[0], recursive=True)

    @contextlib.contextmanager
    def _asking(self, name: str, *, writing: bool = False) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            if writing:
                raise Unreachable(f"{self.url(name)}: there is no such bucket or folder") from None
            raise ObjectMissing(self.url(name)) from None
        except (OSError, ArrowException) as error:
            where = self.url(name) if name else self.shown
            raise Unreachable(f"{where}: {why(error)}") from None


def why(error: Exception) -> str:
    """Translate an error of PyArrow."""
    text = str(error)
    for mark, reason in _REASONS:
        if mark in text:
            return reason
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return text
