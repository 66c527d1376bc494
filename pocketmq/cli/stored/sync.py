"""`pocketmq sync`: archives a store in S3, or in another place that PyArrow can write to."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import count, directory
from pocketmq.cli.output import complain, counted, print_json
from pocketmq.cli.progress_bar import progress_bar
from pocketmq.cli.stored.stored_files import exit_code_of
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.store.errors import StoreError

if TYPE_CHECKING:
    from pocketmq.archive.sync import SyncReport
    from pocketmq.archive.verify import Fault


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "sync",
        description="Uploads the full files of a store's commit log, and the queue entries of "
        "their messages, to an archive. It skips what is already there, also after a kill. It "
        "reads the files of the store: no broker is needed, and one may be writing. Each broker "
        "has its own directory below URL. Messages that expire in the store stay in the archive. "
        "Needs pip install 'pocketmq[arrow]'.",
        epilog="URL is s3://BUCKET/PATH, gs://BUCKET/PATH, abfs://..., hdfs://HOST:PORT/PATH, "
        "file:///PATH, or a path. Credentials come from the environment (AWS_ACCESS_KEY_ID and so "
        "on) or the files of the cloud's tools. For other servers than Amazon's set "
        "AWS_ENDPOINT_URL, or write s3://BUCKET/PATH?scheme=http&endpoint_override=HOST:PORT. Exit "
        "codes: 6 an object of the archive is damaged, 7 the archive cannot be reached.",
    )
    parser.add_argument(
        "store", type=directory, metavar="DIR", help="the store's directory (storePathRootDir)"
    )
    parser.add_argument("url", metavar="URL", help="URL of the archives")
    parser.add_argument(
        "--all",
        dest="everything",
        action="store_true",
        help="also upload the last file of the log, up to the end that is on disk. Each sync adds "
        "an object: run it at most every few minutes",
    )
    parser.add_argument(
        "--prune",
        action="store_true",
        help="remove from the archive what has expired in the store",
    )
    parser.add_argument(
        "--verify",
        action="store_true",
        help="afterwards verify the checksums of the whole archive",
    )
    parser.add_argument(
        "--parallel", type=count, default=4, metavar="N", help="parallel uploads (default 4)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser


def run(options: argparse.Namespace) -> int:
    """Upload, and verify if requested."""
    try:
        return _sync(options)
    except StoreError as error:
        return complain(str(error), exit_code_of(error))
    except OSError as error:
        return complain(str(error), ExitCode.FAILURE)


def _sync(options: argparse.Namespace) -> int:
    import msgspec

    from pocketmq.archive.location import Location
    from pocketmq.archive.manifest import read_manifest
    from pocketmq.archive.sync import broker_folder, sync
    from pocketmq.archive.verify import objects_of, verify
    from pocketmq.store.scan.planning.snapshot import check_store

    check_store(options.store)
    archives = Location(options.url).open()
    with progress_bar("uploading") as (planned, advanced):
        report = sync(
            options.store,
            archives,
            everything=options.everything,
            prune=options.prune,
            parallel=options.parallel,
            planned=planned,
            advanced=advanced,
            clock=lambda: time.time_ns() // 1_000_000,
        )
    faults = None
    objects = 0
    if options.verify:
        folder = broker_folder(archives, options.store)
        manifest = read_manifest(folder)
        assert manifest is not None, "a sync writes one"
        stored = list(objects_of(manifest))
        objects = len(stored)
        with progress_bar("verifying") as (planned, advanced):
            planned(sum(each.size for each in stored))
            faults = verify(folder, manifest, parallel=options.parallel, advanced=advanced)
    if options.json:
        fields = msgspec.to_builtins(report)
        if faults is not None:
            fields |= {"verified": objects, "faults": msgspec.to_builtins(faults)}
        print_json(fields)
    else:
        _print(report, faults, objects)
    return ExitCode.STORE_CORRUPT if faults else ExitCode.OK


def _print(report: SyncReport, faults: list[Fault] | None, objects: int) -> None:
    print(
        f"{report.archive}: physical offsets {report.begin} to {report.end}; uploaded "
        f"{counted(report.uploaded, 'part')} with {counted(report.messages, 'message')} "
        f"({counted(report.bytes, 'byte')})"
    )
    if report.pruned:
        print(f"removed {counted(report.pruned, 'part')} that expired in the store")
    if report.missing:
        print(f"note: {counted(report.missing, 'byte')} expired before they were archived")
    if report.waiting:
        print(
            f"note: {counted(report.waiting, 'byte')} of the last file of the log, which is not "
            "full, were left for a later sync; --all uploads them now"
        )
    if faults is None:
        return
    print(f"verified {counted(objects, 'object')}: {counted(len(faults), 'fault')}")
    for fault in faults:
        print(f"{fault.object}: {fault.reason}")
