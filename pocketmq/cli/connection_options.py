"""How a command connects to a cluster: encryption, and the user who signs the requests."""

from __future__ import annotations

import argparse
import ssl
from typing import TypedDict

from pocketmq.cli.client_credentials import add_credentials_option, credentials_of
from pocketmq.cli.client_tls import add_tls_options, tls_of
from pocketmq.client.credentials import Credentials


class Connection(TypedDict):
    """The options of every client that the command line offers."""

    tls: ssl.SSLContext | bool
    credentials: Credentials | None


def add_connection_options(parser: argparse.ArgumentParser) -> None:
    """Add `--credentials` and the options of TLS."""
    add_credentials_option(parser)
    add_tls_options(parser)


def connection_of(options: argparse.Namespace) -> Connection:
    """Return the options that every client of the command takes.

    Raises:
        OSError: a file cannot be used; the text names it.
    """
    return {"tls": tls_of(options), "credentials": credentials_of(options)}
