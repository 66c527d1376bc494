"""`pocketmq store`: checks, repairs, prints and copies the files of a store."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import directory
from pocketmq.cli.output import complain, counted, print_json, print_rows
from pocketmq.cli.servers.server_command import add_config_options, read_broker_config
from pocketmq.cli.stored import store_dump
from pocketmq.limited_log import printable
from pocketmq.remoting.serving.service import ExitCode
from pocketmq.remoting.settings.properties_file import ConfigError, ConfigErrors

if TYPE_CHECKING:
    from pocketmq.broker.config import BrokerConfig
    from pocketmq.store.check.report import Report
    from pocketmq.store.config import StoreConfig

_SHOWN = 50  # problems in the table; --json has them all


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "store",
        description="Checks, repairs, prints, and copies the files of a store.",
    )
    actions = parser.add_subparsers(metavar="check|repair|dump|snapshot", required=True)
    check = actions.add_parser(
        "check",
        help="report what is wrong with a store, and whether a broker would start",
        description="Verifies the checksums of the whole commit log, and compares the consume "
        "queues, index, timers, checkpoint and broker tables with it. It reads config/auth.json "
        "as a broker does, and names its super users. It changes nothing; a broker may have the "
        "store open. File sizes are taken from the files. Exit codes: 0 no problem, 1 a "
        "problem with which a broker starts (or is running), 6 a broker would not start.",
    )
    _add_common(check)
    check.set_defaults(action=_check)
    repair = actions.add_parser(
        "repair",
        help="repair a damaged store",
        description="Repairs what `pocketmq store check` finds, while no broker has the store "
        "open. It replaces damaged ranges of the commit log by padding that every broker skips, "
        "rebuilds the queues and timers from the log (the next start rebuilds the index), "
        "restores unreadable tables from their backups, and enters missing topics from the "
        "queues on disk. Damaged data moves to DIR/damaged; nothing is deleted. It prints which "
        "messages are lost. Their offsets are not reused, with two exceptions after a kill "
        "(docs/servers.md).",
    )
    _add_common(repair)
    repair.add_argument(
        "--dry-run", action="store_true", help="only print what would be done, and what is lost"
    )
    repair.set_defaults(action=_repair)
    dump = actions.add_parser(
        "dump",
        help="print the records of a store",
        description="Prints the records of the commit log, or of one topic, one a line: physical "
        "offset, size, TOPIC/QUEUE/OFFSET, born and stored time, tag, keys, id, and body length, "
        "separated by tabs. The log also contains half messages, delayed messages, and the "
        "broker's own. A broker may have the store open. Unreadable ranges are reported on "
        "stderr and skipped; the exit code is then 1.",
    )
    _add_common(dump, "print JSON, one object a line")
    store_dump.add_options(dump)
    dump.set_defaults(action=store_dump.dump)
    snapshot = actions.add_parser(
        "snapshot",
        help="copy a store, also while a broker uses it",
        description="Copies a store to the directory TARGET, which must be missing or empty; a "
        "broker may have the store open. The copy contains every message acknowledged before the "
        "command began; a broker opens it as after a crash. On the same file system, commit log "
        "files that no longer change are hard links, which take no space until the store removes "
        "its own. Consumer offsets are the last ones that the broker wrote: consumers may "
        "receive the last seconds again.",
    )
    _add_common(snapshot)
    snapshot.add_argument("target", type=directory, metavar="TARGET", help="the copy's directory")
    snapshot.set_defaults(action=_snapshot)
    return parser


def _add_common(parser: argparse.ArgumentParser, json: str = "print one JSON object") -> None:
    parser.add_argument(
        "store", type=directory, metavar="DIR", help="the store's directory (storePathRootDir)"
    )
    parser.add_argument("--json", action="store_true", help=json)
    add_config_options(parser, "broker.conf")


def run(options: argparse.Namespace) -> int:
    """Run the sub-command."""
    from pocketmq.store.errors import ForeignStore, NotADirectory, NotAFile
    from pocketmq.store.files import check_places
    from pocketmq.store.foreign_store import check_kind

    try:
        config = read_broker_config(options)
    except (ConfigErrors, ConfigError) as error:
        return complain(str(error), ExitCode.CONFIG)
    config.store_path_root_dir = str(options.store)
    try:
        check_places(config.directories, config.files)
        check_kind(config.root)
        has_log = config.commit_log_directory.is_dir()
    except (NotADirectory, NotAFile, ForeignStore) as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    except OSError as error:
        return complain(str(error), ExitCode.FAILURE)
    if not has_log:
        return complain(
            f"{config.commit_log_directory} is missing: {options.store} is not the directory of a "
            "store, or its commit log lies elsewhere (--set storePathCommitLog=DIR)",
            ExitCode.UNAVAILABLE,
        )
    try:
        return int(options.action(config, options))
    except BrokenPipeError:
        raise  # the reader of stdout is gone
    except OSError as error:
        return complain(str(error), ExitCode.FAILURE)


def _check(config: BrokerConfig, options: argparse.Namespace) -> int:
    from pocketmq.store.check.store_check import check_store

    with _progress(config, "checking") as advanced:
        report = check_store(config, advanced)
    _check_users(report, config)
    if options.json:
        print_json(report)
    else:
        _print_report(report)
    if report.starts is False:
        return ExitCode.STORE_CORRUPT
    return ExitCode.FAILURE if report.problems else ExitCode.OK


def _check_users(report: Report, config: BrokerConfig) -> None:
    """Add the file of users and access lists to a report."""
    from pocketmq.auth.store import AUTH_FILE, AuthFileError, read_auth_file
    from pocketmq.store.check.report import Problem

    path = config.root / "config" / AUTH_FILE
    try:
        users, lists = read_auth_file(path)
    except FileNotFoundError:
        return
    except AuthFileError as error:
        report.problems.append(Problem(part="users", where=str(path), problem=str(error)))
        if config.authentication_enabled and report.starts:
            report.starts, report.refusal = False, str(error)
        return
    supers = sorted(name for name, user in users.items() if user.is_super)
    named = ", ".join(supers[:_SHOWN]) + (", ..." if len(supers) > _SHOWN else "")
    report.remarks.append(
        f"{path} has {counted(len(users), 'user')}, {counted(len(lists), 'access list')}, and "
        + (f"these super users: {named}" if supers else "no super user")
    )


def _repair(config: StoreConfig, options: argparse.Namespace) -> int:
    from pocketmq.store.errors import StoreError, StoreLocked
    from pocketmq.store.repair.store_repair import repair_store

    try:
        with _progress(config, "checking") as advanced:
            repair = repair_store(config, dry_run=options.dry_run, advanced=advanced)
    except StoreLocked as error:
        return complain(str(error), ExitCode.STORE_LOCKED)
    except StoreError as error:
        return complain(str(error), ExitCode.STORE_CORRUPT)
    if options.json:
        print_json(repair)
        return ExitCode.OK
    for line in repair.lines():
        print(printable(line))
    if not repair.actions:
        print(f"{repair.store}: nothing to repair")
    elif repair.dry_run:
        print(f"{repair.store}: nothing was changed (--dry-run)")
    return ExitCode.OK


def _snapshot(config: StoreConfig, options: argparse.Namespace) -> int:
    from pocketmq.store.errors import NotAFile
    from pocketmq.store.snapshot.store_snapshot import TargetNotEmpty, write_snapshot

    try:
        with _progress(config, "copying") as advanced:
            snapshot = write_snapshot(config, options.target, advanced)
    except TargetNotEmpty as error:
        return complain(str(error), ExitCode.USAGE)
    except NotAFile as error:
        return complain(str(error), ExitCode.UNAVAILABLE)
    if options.json:
        print_json(snapshot)
        return ExitCode.OK
    print(
        f"{snapshot.target}: commit log from physical offset {snapshot.begin} to {snapshot.end}; "
        f"{counted(snapshot.linked, 'file')} linked, {counted(snapshot.copied, 'file')} copied "
        f"({counted(snapshot.bytes, 'byte')})"
    )
    for path in snapshot.left_out[:_SHOWN]:
        print(printable(f"note: {path} is not part of a snapshot"))
    return ExitCode.OK


def _print_report(report: Report) -> None:
    print_rows([_row(part) for part in report.parts], as_json=False, empty="")
    if report.problems:
        print()
        rows = [_row(problem) for problem in report.problems[:_SHOWN]]
        for row in rows:
            del row["derived"]
        print_rows(rows, as_json=False, empty="")
    if len(report.problems) > _SHOWN:
        print(f"... and {len(report.problems) - _SHOWN} more; --json prints them all")
    for remark in report.remarks[:_SHOWN]:
        print(printable(f"note: {remark}"))
    print()
    found = counted(len(report.problems), "problem") if report.problems else "nothing is wrong"
    print(f"{report.store} ({report.state.value}): {found}")
    if report.starts is False:
        print(printable(f"A broker would not start: {report.refusal}"))
    if report.problems:
        print(f"Type: pocketmq store repair {report.store} --dry-run")


def _row(item: msgspec.Struct) -> dict[str, Any]:
    return {
        name: "" if value is None else value for name, value in msgspec.structs.asdict(item).items()
    }


@contextlib.contextmanager
def _progress(config: StoreConfig, what: str) -> Iterator[Callable[[int], None]]:
    """Show on stderr, if that is a terminal, how much of the commit log has been read."""
    total = sum(path.stat().st_size for path in config.commit_log_directory.iterdir())
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn(what), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.advance(task, count)
