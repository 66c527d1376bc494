"""The option for the user whose key signs the requests of a command."""

from __future__ import annotations

import argparse
import logging
import os
from pathlib import Path
from typing import Final

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import InvalidName
from pocketmq.remoting.settings.exposure import warn_if_readable
from pocketmq.remoting.settings.properties_file import decode_properties, parse_properties

log = logging.getLogger("pocketmq")

VARIABLE: Final = "POCKETMQ_CREDENTIALS"
_LONGEST_FILE: Final = 64 * 1024


def add_credentials_option(parser: argparse.ArgumentParser) -> None:
    """Add `--credentials`. The secret key is never an argument: all users can see those."""
    parser.add_argument(
        "--credentials",
        type=Path,
        metavar="FILE",
        default=os.environ.get(VARIABLE) or None,
        help="sign requests with the accessKey and secretKey in FILE, in the format of the "
        f"official tools.yml (default: ${VARIABLE})",
    )


def credentials_of(options: argparse.Namespace) -> Credentials | None:
    """Return what clients take as `credentials`.

    Raises:
        OSError: the file cannot be used; the text names it, and the reason.
    """
    if options.credentials is None:
        return None
    path = Path(options.credentials).expanduser()
    try:
        with path.open("rb") as file:
            text, _ = decode_properties(file.read(_LONGEST_FILE))
    except OSError as error:
        raise OSError(f"--credentials {path}: {error.strerror or error}") from None
    warn_if_readable(log, [str(path)])
    # Two or three lines `name: value`, which are both YAML and Java properties.
    given = {name: value.strip().strip("\"'") for name, value in parse_properties(text).items()}
    try:
        return Credentials(
            given.get("accessKey", ""), given.get("secretKey", ""), given.get("securityToken")
        )
    except InvalidName:
        raise OSError(f"--credentials {path}: it needs accessKey and secretKey") from None
