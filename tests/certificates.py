"""Certificates for tests, made by the program openssl."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Certificate:
    """PEM files: the certificate, and its key."""

    chain: Path
    key: Path


class Authority:
    """Signs certificates of 127.0.0.1; its own is `certificate`."""

    def __init__(self, directory: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("the program openssl is missing")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self.certificate = self._request(name, "-x509", "-days", "2")

    def sign(self, name: str, *, password: str = "", days: int = 2) -> Certificate:
        """Return a new certificate; `password` encrypts its key. One that is valid for a negative
        number of days has expired."""
        extensions = self._directory / "extensions"
        extensions.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        asked = self._request(name)
        chain = self._directory / f"{name}.chain.pem"
        openssl(
            "x509", "-req", "-in", asked.chain, "-CA", self.certificate.chain, "-CAkey",
            self.certificate.key, "-CAcreateserial", "-days", str(days), "-extfile", extensions,
            "-out", chain,
        )  # fmt: skip
        key = asked.key
        if password:
            key = self._directory / f"{name}.encrypted.pem"
            openssl(
                "pkcs8", "-topk8", "-in", asked.key, "-out", key, "-passout", f"pass:{password}"
            )
        return Certificate(chain, key)

    def _request(self, name: str, *more: str) -> Certificate:
        made = Certificate(self._directory / f"{name}.pem", self._directory / f"{name}.key.pem")
        openssl(
            "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj",
            f"/CN={name}", "-keyout", made.key, "-out", made.chain, *more,
        )  # fmt: skip
        return made


def openssl(*arguments: str | Path) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
