"""Uploads the new parts of a store to its archive.

Parts are uploaded in parallel, and the manifest is rewritten whenever all parts up to a place are
complete. So an upload that was killed resumes after the last part of the manifest; its incomplete
uploads are repeated under the same names.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import quote

import msgspec

from pocketmq.archive.errors import ObjectDamaged, OtherStore, WrongBrokerName
from pocketmq.archive.manifest import (
    Manifest,
    read_interrupted,
    read_manifest,
    write_manifest,
)
from pocketmq.archive.objects import Objects
from pocketmq.archive.parts import Part, StoredObject, object_names
from pocketmq.archive.queue_index import QueueIndex, build
from pocketmq.archive.sealed import SealedLog, Span, sealed_log
from pocketmq.message.checksum import crc32
from pocketmq.store.scan.planning.snapshot import StoreSnapshot
from pocketmq.store.scan.queues.segments import undisturbed
from pocketmq.store.scan.records.topic_table import (
    broker_name,
    configured_queues,
    created_offsets,
)

log = logging.getLogger(__name__)

_BLOCK: Final = 4 * 1024 * 1024
_HEAD: Final = 4096


class SyncReport(msgspec.Struct, rename="camel"):
    """The result of a sync.

    Attributes:
        archive: the URL of the broker's archive.
        begin, end: physical offsets of the archive's contents now.
        uploaded: parts that were uploaded, ...
        bytes: ... their bytes of the commit log, ...
        messages: ... and their messages.
        pruned: parts that were removed.
        missing: bytes of the commit log that expired before they were archived, this time.
        waiting: bytes of the last file, which `everything` would have archived.
    """

    archive: str
    broker_name: str
    begin: int
    end: int
    uploaded: int = 0
    bytes: int = 0
    messages: int = 0
    pruned: int = 0
    missing: int = 0
    waiting: int = 0


def broker_folder(archives: Objects, root: Path) -> Objects:
    """Return the folder for the broker whose store is at `root`. Raises WrongBrokerName."""
    name = broker_name(root)
    if name.strip(".") == "":  # quoting leaves dots, and `..` is the directory above
        raise WrongBrokerName(root, name)
    return archives.under(quote(name, safe=""))


def sync(
    root: Path,
    archives: Objects,
    *,
    everything: bool = False,
    prune: bool = False,
    parallel: int = 4,
    planned: Callable[[int], None] = lambda _: None,
    advanced: Callable[[int], None] = lambda _: None,
    clock: Callable[[], int],
) -> SyncReport:
    """Upload the parts of the store at `root` that its archive lacks.

    Args:
        archives: the location of archives; the broker's is a folder there.
        everything: also archive the last file, up to where it is flushed.
        prune: remove the parts that the store no longer has.
        parallel: uploads at the same time.
        planned: called with the bytes of the log to upload.
        advanced: called with the bytes of the log uploaded since the last call, by several threads.
        clock: the time in ms.

    Raises:
        NoStore: the store does not exist.
        WrongBrokerName: the broker's name cannot be the name of a directory.
        OtherStore: the archive is of another store.
        ArchiveError: the archive cannot be read or written.
    """
    uploads = _Sync(root, broker_folder(archives, root), planned, advanced, clock)
    return uploads.run(everything=everything, prune=prune, parallel=parallel)


class _Sync:
    def __init__(
        self,
        root: Path,
        folder: Objects,
        planned: Callable[[int], None],
        advanced: Callable[[int], None],
        clock: Callable[[], int],
    ) -> None:
        self._root = root
        self._folder = folder
        self._planned = planned
        self._advanced = advanced
        self._clock = clock

    def run(self, *, everything: bool, prune: bool, parallel: int) -> SyncReport:
        sealed = undisturbed(lambda: sealed_log(self._root))
        before = read_manifest(self._folder)
        manifest = before or read_interrupted(self._folder)
        manifest = manifest or Manifest(sealed.store.broker_name, 0, {}, ())
        self._check_origin(sealed, manifest)
        topics = configured_queues(self._root)
        for topic, queue_id in sealed.store.queues:
            topics[topic] = max(topics.get(topic, 0), queue_id + 1)
        created = created_offsets(self._root)
        manifest = replace(manifest, topics=topics, created=created)
        report = SyncReport(self._folder.shown, manifest.broker_name, 0, 0)
        spans = list(sealed.spans(manifest.end, whole_files=not everything))
        if manifest.parts and spans and spans[0].begin > manifest.end:
            report.missing = spans[0].begin - manifest.end
            log.warning(
                "%s: physical offsets %d to %d expired in the store %s before they were archived; "
                "run the sync more often, or keep messages longer (fileReservedTime)",
                self._folder.shown, manifest.end, spans[0].begin, self._root,
            )  # fmt: skip
        self._planned(sum(span.end - span.begin for span in spans))
        manifest = self._upload(sealed.store, spans, manifest, parallel, report)
        expired: tuple[Part, ...] = ()
        if prune:
            expired = tuple(p for p in manifest.parts if p.end <= sealed.store.log.begin)
            manifest = replace(manifest, parts=manifest.parts[len(expired) :])
        if before is None or replace(manifest, written=before.written) != before:
            self._write(manifest)
        for part in expired:
            self._folder.delete(part.log.name)
            self._folder.delete(part.queues.name)
        report.pruned = len(expired)
        left = sealed.spans(manifest.end, whole_files=False)
        report.waiting = sum(span.end - span.begin for span in left)
        if manifest.parts:
            report.begin, report.end = manifest.parts[0].begin, manifest.end
        return report

    def _check_origin(self, sealed: SealedLog, manifest: Manifest) -> None:
        """Raise OtherStore if archive and store differ where both have messages."""
        own = sealed.store.log
        ends = (queue.max_physical() for queue in sealed.store.queues.values())
        known = max(sealed.end, own.begin, *ends, 0)
        # Records of deleted topics have no entries, but the log has them.
        if manifest.end > known and not _has_last_part(sealed.store, manifest):
            raise OtherStore(
                f"{self._folder.shown} has messages up to physical offset {manifest.end}, the "
                f"store {self._root} only up to {sealed.end}: it is not the store that was "
                "archived, or has lost messages. Archive it under another URL"
            )
        for part in reversed(manifest.parts):
            if own.find(part.begin) is None:
                continue
            if crc32(_content(sealed.store, Span(part.begin, part.end))[:_HEAD]) != part.head:
                raise OtherStore(
                    f"{self._folder.url(part.log.name)} has other messages than the store "
                    f"{self._root} at physical offset {part.begin}: it is not the store that was "
                    "archived. Archive it under another URL"
                )
            return

    def _upload(
        self,
        store: StoreSnapshot,
        spans: list[Span],
        manifest: Manifest,
        parallel: int,
        report: SyncReport,
    ) -> Manifest:
        """Upload parts, and write a manifest after each; return the last manifest."""
        waiting: deque[Future[Part]] = deque()
        with ThreadPoolExecutor(parallel, "upload") as uploads:

            def finish() -> None:
                nonlocal manifest
                part = waiting.popleft().result()
                manifest = replace(manifest, parts=(*manifest.parts, part))
                self._write(manifest)
                report.uploaded += 1
                report.bytes += part.end - part.begin
                report.messages += part.messages

            try:
                for span in spans:
                    if len(waiting) == parallel:  # also bounds the indexes in memory
                        finish()
                    index = build(store, span.begin, span.end)
                    content = _content(store, span)
                    waiting.append(uploads.submit(self._upload_part, span, content, index))
                while waiting:
                    finish()
            except BaseException:
                uploads.shutdown(wait=False, cancel_futures=True)
                raise
        return manifest

    def _upload_part(self, span: Span, content: memoryview, index: QueueIndex) -> Part:
        log_name, queues_name = object_names(span.begin, span.end)
        return Part(
            span.begin,
            span.end,
            crc32(content[:_HEAD]),
            self._put(log_name, content, self._advanced),
            self._put(queues_name, memoryview(index.content)),
            index.directory_at,
            crc32(memoryview(index.content)[index.directory_at :]),
            index.messages,
        )

    def _put(
        self, name: str, content: memoryview, advanced: Callable[[int], None] = lambda _: None
    ) -> StoredObject:
        digest = hashlib.sha256()
        with self._folder.written(name) as stream:
            for begin in range(0, len(content), _BLOCK):
                block = content[begin : begin + _BLOCK]
                digest.update(block)
                stream.write(block)
                advanced(len(block))
        size = self._folder.size(name)
        if size != len(content):
            raise ObjectDamaged(
                self._folder.url(name), f"it has {size} bytes after {len(content)} were uploaded"
            )
        return StoredObject(name, len(content), digest.hexdigest())

    def _write(self, manifest: Manifest) -> None:
        write_manifest(self._folder, replace(manifest, written=self._clock()))


def _has_last_part(store: StoreSnapshot, manifest: Manifest) -> bool:
    """Return whether the log of a store has, byte by byte, the last part of a manifest."""
    if not manifest.parts or store.log.find(manifest.parts[-1].begin) is None:
        return False
    last = manifest.parts[-1]
    content = _content(store, Span(last.begin, last.end))
    return hashlib.sha256(content).hexdigest() == last.log.sha256


def _content(store: StoreSnapshot, span: Span) -> memoryview:
    """Return bytes of one file of the log. They stay readable after the file is removed."""
    segment = store.log.find(span.begin)
    assert segment is not None, "the span begins in the log"
    return segment.view[span.begin - segment.base : span.end - segment.base]
