"""SSL contexts from TLS settings, and new ones when the files of a server's certificate change.

Loading a broken or missing file is an error at start. Later, the server goes on with the previous
one: a certificate that is being replaced must not take the server away from its clients.
"""

from __future__ import annotations

import contextlib
import logging
import os
import ssl
import stat
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from pocketmq.remoting.settings.exposure import warn_if_readable
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.remoting.tls.certificate_expiry import expiry_of
from pocketmq.remoting.tls.tls_choice import restrict
from pocketmq.remoting.tls.tls_config import ClientAuth, TlsConfig, TlsMode

log = logging.getLogger("pocketmq.remoting.tls")

LOOK_INTERVAL: Final = 1.0
"""Minimum seconds between two checks of the files; new connections trigger them."""

MOST_BYTES: Final = 4 << 20
"""Of a file: all authorities that browsers trust are a tenth of it."""

_VERIFY = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}

# Detects that a file was replaced: time of change (ns), size, inode. None: it does not exist.
_Stamp = tuple[tuple[int, int, int] | None, ...]


class ServerTls:
    """The TLS side of the servers of one process; made by `server_tls`.

    `protocols`: those spoken in the connections (ALPN), for clients that insist on an answer.

    Attributes:
        required: plain connections are refused.
        expires_at: when the certificate in use expires, Unix seconds; None if that is not known.
    """

    def __init__(
        self,
        config: TlsConfig,
        *,
        protocols: Sequence[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.required = config.mode is TlsMode.ENFORCING
        self._protocols = protocols
        self._config = config
        self._clock = clock
        self._looked = clock()
        self._stamp = self._look()
        self.expires_at: float | None = None
        self._context = self._new_context()
        self._has_expired = False
        self._tell_of_expiry()

    def _tell_of_expiry(self) -> None:
        """Log once that the certificate in use has expired."""
        if self._has_expired or self.expires_at is None or time.time() < self.expires_at:
            return
        self._has_expired = True
        when = datetime.fromtimestamp(self.expires_at, UTC).isoformat(" ", "seconds")
        log.error(
            "the certificate of %s expired at %s: clients that verify it cannot connect; open "
            "connections stay as they are",
            self._config.cert_path,
            when,
        )

    def _new_context(self) -> ssl.SSLContext:
        context = server_context(self._config)
        if self._protocols:
            context.set_alpn_protocols(list(self._protocols))
        if self._config.cert_path and not self._config.test_mode:
            with contextlib.suppress(OSError, UnicodeError):
                self.expires_at = expiry_of(Path(self._config.cert_path).read_text())
        return context

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection: that of the current files, if they are good."""
        now = self._clock()
        if now - self._looked < LOOK_INTERVAL or self._config.test_mode:
            return self._context
        self._looked = now
        stamp = self._look()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._check_files()
                self._context = self._new_context()
            except ConfigError as error:
                log.error("new connections still get the old certificate: %s", error)
            else:
                log.info("new connections get the certificate of %s", self._config.cert_path)
                self._has_expired = False
        self._tell_of_expiry()
        return self._context

    def _check_files(self) -> None:
        """Raise ConfigError for a file that would take long to read, such as a pipe: while it is
        read, the server does nothing else."""
        config = self._config
        for path in filter(None, (config.cert_path, config.key_path, config.trust_cert_path)):
            with contextlib.suppress(OSError):  # it is told when the file is loaded
                found = os.stat(path)
                if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                    raise ConfigError("", path, "", text=f"{path} is not a file of certificates")

    def _look(self) -> _Stamp:
        config = self._config
        return tuple(map(_stamp, (config.cert_path, config.key_path, config.trust_cert_path)))


def _stamp(path: str) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def server_tls(config: TlsConfig, *, protocols: Sequence[str] = ()) -> ServerTls | None:
    """Return the TLS side of a server, None if it serves plain connections only.

    `protocols` as in `ServerTls`.

    Raises:
        ConfigError: the settings contradict each other, or a file cannot be used.
    """
    if config.mode is TlsMode.DISABLED:
        return None
    if config.test_mode or config.cert_path or config.key_path:
        warn_if_readable(log, [config.key_path, config.client_key_path])
        return ServerTls(config, protocols=protocols)
    if config.mode is TlsMode.ENFORCING:
        raise ConfigError(
            "tls.server.certPath",
            "",
            "a certificate",
            text="tls.server.mode = enforcing needs tls.server.certPath and tls.server.keyPath, or "
            "tls.test.mode.enable = true",
        )
    return None


def server_context(config: TlsConfig) -> ssl.SSLContext:
    """Return a new context of a server. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    restrict(context, config.protocols, config.ciphers)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if config.test_mode:
        _load_self_signed(context)
        return context
    if not config.cert_path or not config.key_path:
        missing = "tls.server.keyPath" if config.cert_path else "tls.server.certPath"
        raise ConfigError(missing, "", "set, as certificate and key belong together")
    _load_chain(
        context, "tls.server.certPath", config.cert_path, config.key_path, config.key_password
    )
    verify = _VERIFY[config.need_client_auth]
    if verify is ssl.CERT_NONE:
        return context
    if not config.auth_client or not config.trust_cert_path:
        # The official server would take any certificate here, even a self-signed one.
        raise ConfigError(
            "tls.server.need.client.auth",
            config.need_client_auth.value,
            "none, or with tls.server.authClient = true and tls.server.trustCertPath, which say "
            "whose certificates are good",
        )
    _load_trusted(context, "tls.server.trustCertPath", config.trust_cert_path)
    context.verify_mode = verify
    return context


def client_context(config: TlsConfig) -> ssl.SSLContext | None:
    """Return the context of a server's connections to others; None if they are plain.

    Raises:
        ConfigError: a file cannot be used.
    """
    if not config.enable:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    restrict(context, config.protocols, config.ciphers)
    if not config.client_auth_server:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif config.client_trust_cert_path:
        _load_trusted(context, "tls.client.trustCertPath", config.client_trust_cert_path)
    else:
        context.load_default_certs()
    if config.client_cert_path:
        _load_chain(
            context,
            "tls.client.certPath",
            config.client_cert_path,
            config.client_key_path,
            config.client_key_password,
        )
    return context


def loopback_context(config: TlsConfig) -> ssl.SSLContext | None:
    """Return the context of a process's connections to its own servers; None if they take plain
    ones. Their certificates are not verified.

    Raises:
        ConfigError: a file cannot be used.
    """
    if config.mode is not TlsMode.ENFORCING:
        return None
    return client_context(msgspec.structs.replace(config, enable=True, client_auth_server=False))


def _load_chain(context: ssl.SSLContext, setting: str, chain: str, key: str, password: str) -> None:
    try:
        # Always with a password: without one, OpenSSL would ask on the terminal.
        context.load_cert_chain(chain, key or None, password=lambda: password)
    except (OSError, ValueError) as error:
        text = f"{setting} = {chain!r} with the key {key!r} cannot be used: {_why(error)}"
        raise ConfigError(setting, chain, "a certificate with its key", text=text) from None


def _load_trusted(context: ssl.SSLContext, setting: str, path: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        text = f"{setting} = {path!r} cannot be used: {_why(error)}"
        raise ConfigError(setting, path, "a file of certificates", text=text) from None


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key belongs to another certificate"
        return str(error.reason or error)
    if isinstance(error, OSError):
        return str(error.strerror or error)
    return str(error)


def _load_self_signed(context: ssl.SSLContext) -> None:
    """Load a certificate that is made now and forgotten with the process."""
    with tempfile.TemporaryDirectory(prefix="pocketmq-tls-") as directory:
        chain, key = Path(directory, "chain.pem"), Path(directory, "key.pem")
        try:
            subprocess.run(
                [
                    "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3650", "-subj",
                    "/CN=pocketmq test mode", "-keyout", key, "-out", chain,
                ],
                check=True, capture_output=True, timeout=30,
            )  # fmt: skip
        except (OSError, subprocess.SubprocessError) as error:
            raise ConfigError(
                "tls.test.mode.enable",
                "true",
                "false",
                text="tls.test.mode.enable = true needs the program openssl, which makes the "
                f"certificate: {error}; set tls.server.certPath and tls.server.keyPath instead",
            ) from None
        context.load_cert_chain(chain, key)
