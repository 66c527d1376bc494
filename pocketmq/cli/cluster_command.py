"""What the commands that talk to a cluster share: where it is, and how they end."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Awaitable, Callable

from pocketmq.client.errors import (
    ClientError,
    InvalidMessage,
    InvalidName,
    NoNameServer,
    RemotingError,
    is_silence,
)
from pocketmq.client.name_server_list import NAMESRV_ADDR
from pocketmq.remoting.service import ExitCode, StopEvent
from pocketmq.remoting.service import run as run_until_stopped

DEFAULT_NAME_SERVER = "127.0.0.1:9876"


def add_name_server_option(parser: argparse.ArgumentParser) -> None:
    """`-n ADDR;ADDR`: the name servers, by default the environment's, else this machine's."""
    parser.add_argument(
        "-n",
        "--namesrv",
        metavar="ADDR;ADDR",
        default=os.environ.get(NAMESRV_ADDR) or DEFAULT_NAME_SERVER,
        help=f"name servers (default: ${NAMESRV_ADDR}, else {DEFAULT_NAME_SERVER})",
    )


def run_command(main: Callable[[StopEvent], Awaitable[int]], options: argparse.Namespace) -> int:
    """Runs `main(stop)`, whose result is the exit code, until its end or a signal.

    A cluster that can not be reached, or that refuses, ends as one plain line on stderr; the
    client's own warnings of it are left out, unless the user wants all (`-v`).
    """
    if not options.verbose:
        logging.getLogger("pocketmq.client").setLevel(logging.ERROR)
    code: int = ExitCode.OK

    async def guarded(stop: StopEvent) -> None:
        nonlocal code
        try:
            code = await main(stop)
        except (InvalidName, InvalidMessage) as error:
            code = complain(error.remark, ExitCode.USAGE)
        except NoNameServer as error:
            hint = "is it running? `pocketmq serve` starts one here, -n names another"
            code = complain(f"{error.remark}; {hint}", ExitCode.UNAVAILABLE)
        except RemotingError as error:
            unreachable = isinstance(error, ClientError) or is_silence(error)
            code = complain(
                str(error.remark or error),
                ExitCode.UNAVAILABLE if unreachable else ExitCode.FAILURE,
            )
        except OSError as error:
            code = complain(str(error), ExitCode.FAILURE)

    return run_until_stopped(guarded) or code


def complain(text: str, code: ExitCode) -> ExitCode:
    """Says what is wrong, and returns the exit code for it."""
    print(f"error: {text}", file=sys.stderr)
    return code
