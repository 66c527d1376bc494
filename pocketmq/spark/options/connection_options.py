"""How to reach the brokers: the options shared by reads from and writes to running brokers.

Errors and reprs never show a secret.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import RemotingError
from pocketmq.client.options import ClientOptions
from pocketmq.client.routes.name_server_list import NAMESRV_ADDR, check_namesrv
from pocketmq.spark.options.option_error import OptionError, shown

#: Longer than a client's: a broker's restart should not fail a task attempt.
TIMEOUT: Final = 60.0
LONGEST_TIMEOUT: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Tls:
    """Encrypted connections: files in PEM format, at the same paths on every executor.

    Attributes:
        ca_file: certificates to trust; None trusts the system's.
        cert_file: the client's own certificate, for servers that ask for one.
        key_file: its private key; None if `cert_file` has it.
    """

    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def context(self) -> ssl.SSLContext:
        """Load the files of this machine.

        Raises:
            OSError: a file cannot be read, or is not valid.
        """
        for path in (self.ca_file, self.cert_file, self.key_file):
            if path is not None:
                open(path, "rb").close()  # its error names the file, unlike that of ssl
        context = ssl.create_default_context(cafile=self.ca_file)
        if self.cert_file is not None:
            context.load_cert_chain(self.cert_file, self.key_file)
        return context


@dataclass(frozen=True, slots=True)
class Connection:
    """The addresses of the name servers, and the credentials and TLS of the client.

    Attributes:
        namesrv: the name servers, as for `Producer`.
        credentials, tls: as for every client; None if there are none.
    """

    namesrv: str
    credentials: Credentials | None
    tls: Tls | None

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Connection:
        """Read options by their proper names. Without the option `namesrv`, the name servers come
        from the environment. Raises OptionError."""
        return cls(_namesrv(given), _credentials(given), _tls(given))

    def client_options(self) -> ClientOptions:
        """Return the keyword arguments of a client. Loads the files of TLS; raises OSError."""
        return ClientOptions(
            credentials=self.credentials, tls=False if self.tls is None else self.tls.context()
        )


def text(given: Mapping[str, str], name: str) -> str | None:
    """Return a string without surrounding blanks; None if absent."""
    if name not in given:
        return None
    value = given[name].strip()
    if not value:
        raise _wrong(given, name, "need a text that is not empty, or leave the option out")
    return value


def flag(given: Mapping[str, str], name: str, default: bool) -> bool:
    """Return a boolean."""
    value = given.get(name, str(default)).strip().lower()
    if value not in ("true", "false"):
        raise _wrong(given, name, "need true or false")
    return value == "true"


def seconds(given: Mapping[str, str], name: str, default: float) -> float:
    """Return a number of seconds."""
    try:
        value = float(given.get(name, default))
    except ValueError:
        value = 0.0
    if not 0 < value <= LONGEST_TIMEOUT:
        raise _wrong(given, name, f"need seconds above 0, and at most {LONGEST_TIMEOUT:.0f}")
    return value


def _namesrv(given: Mapping[str, str]) -> str:
    # Read from the environment here, because that of executors differs.
    name = "namesrv" if "namesrv" in given else NAMESRV_ADDR
    addresses = given.get("namesrv", os.environ.get(NAMESRV_ADDR, "")).strip()
    wanted = (
        "need the addresses of the name servers, such as host:9876 or a:9876;b:9876, in the "
        f"option namesrv or in the driver's environment variable {NAMESRV_ADDR}"
    )
    if not addresses:
        raise OptionError("namesrv", addresses, wanted)
    try:
        check_namesrv(addresses)
    except RemotingError as error:
        raise OptionError(name, addresses, f"{error}; {wanted}") from None
    return addresses


def _credentials(given: Mapping[str, str]) -> Credentials | None:
    access, secret = text(given, "accessKey"), text(given, "secretKey")
    token = text(given, "securityToken")
    if access is not None and secret is not None:
        return Credentials(access, secret, token)
    for name in ("accessKey", "secretKey", "securityToken"):
        if name in given:
            raise _wrong(given, name, "needs both accessKey and secretKey")
    return None


def _tls(given: Mapping[str, str]) -> Tls | None:
    files = {name: text(given, name) for name in ("tlsCaFile", "tlsCertFile", "tlsKeyFile")}
    named = [name for name, path in files.items() if path is not None]
    if not flag(given, "tls", bool(named)):
        if named:
            raise _wrong(given, named[0], "cannot go with tls=false")
        return None
    if files["tlsKeyFile"] is not None and files["tlsCertFile"] is None:
        raise _wrong(given, "tlsKeyFile", "needs tlsCertFile, the certificate of the key")
    return Tls(*files.values())


def _wrong(given: Mapping[str, str], name: str, wanted: str) -> OptionError:
    return shown(name, given.get(name, ""), wanted)
