"""The TLS options of the commands that talk to a cluster, and the client's `tls` from them."""

from __future__ import annotations

import argparse
import ssl
from pathlib import Path

#: Attributes of the options that name files.
_FILES = ("tls_ca", "tls_cert", "tls_key")


def add_tls_options(parser: argparse.ArgumentParser) -> None:
    """Add `--tls`, and the options for the trusted certificates and the client's own."""
    group = parser.add_argument_group("TLS, to name servers and brokers alike")
    group.add_argument(
        "--tls",
        action="store_true",
        help="encrypt connections; implied by the other --tls options. Servers' certificates are "
        "verified against the system's authorities",
    )
    group.add_argument(
        "--tls-ca", type=Path, metavar="FILE", help="verify against these authorities instead (PEM)"
    )
    group.add_argument(
        "--tls-cert", type=Path, metavar="FILE", help="client certificate (PEM chain)"
    )
    group.add_argument(
        "--tls-key",
        type=Path,
        metavar="FILE",
        help="key of the client certificate (default: in the same file)",
    )
    group.add_argument(
        "--tls-insecure",
        action="store_true",
        help="accept any certificate with any name: a man in the middle can read and change "
        "everything",
    )


def tls_of(options: argparse.Namespace) -> ssl.SSLContext | bool:
    """Return what clients take as `tls`.

    Raises:
        OSError: a file cannot be used; the text names it.
    """
    if not (options.tls or options.tls_insecure or any(getattr(options, each) for each in _FILES)):
        return False
    try:
        context = ssl.create_default_context(cafile=options.tls_ca)
    except OSError as error:
        raise OSError(f"--tls-ca {options.tls_ca}: {_why(error)}") from None
    if options.tls_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if options.tls_key and not options.tls_cert:
        raise OSError("--tls-key needs --tls-cert, the certificate of that key")
    if options.tls_cert:
        try:
            context.load_cert_chain(options.tls_cert, options.tls_key)
        except OSError as error:
            raise OSError(f"--tls-cert {options.tls_cert}: {_why(error)}") from None
    return context


def _why(error: OSError) -> str:
    if isinstance(error, ssl.SSLError):
        return f"no certificates in PEM form, or no key that fits ({error.reason or error})"
    return error.strerror or str(error)
