"""A self-signed certificate of 127.0.0.1, for tests of encrypted connections."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from .official import need


@dataclass(frozen=True)
class Certificate:
    """PEM files; clients trust `chain`."""

    key: Path
    chain: Path


def make_certificate(directory: Path) -> Certificate:
    """A fresh one; raises Unavailable where openssl is missing."""
    certificate = Certificate(directory / "key.pem", directory / "chain.pem")
    subprocess.run(
        [
            need("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-keyout", certificate.key, "-out", certificate.chain,
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate
