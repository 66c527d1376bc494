"""The settings of TLS, by RocketMQ's own property names (TlsSystemConfig).

The official servers take them as system properties of the JVM and from a file of their own
(`tls.config.file`), whose settings win. Here they can be in broker.conf, namesrv.conf and `--set`
as well. They are kept apart from the other settings, so no request shows or changes them.
"""

from __future__ import annotations

import enum
import os
import stat
from pathlib import Path
from typing import Final

import msgspec
from msgspec import field

from pocketmq.remoting.settings.properties_file import Settings, load_config

PREFIX: Final = "tls."
DEFAULT_FILE: Final = "/etc/rocketmq/tls.properties"
_FILE_KEY: Final = "tls.config.file"


class TlsMode(enum.Enum):
    """What a server does with the first byte of a connection."""

    DISABLED = "disabled"  # plain connections only
    PERMISSIVE = "permissive"  # both
    ENFORCING = "enforcing"  # TLS only


class ClientAuth(enum.Enum):
    """Whether clients show a certificate."""

    NONE = "none"
    OPTIONAL = "optional"  # one that is shown must be good
    REQUIRE = "require"


class TlsConfig(msgspec.Struct, frozen=True, kw_only=True):
    """TLS of one server process.

    Attributes:
        mode: permissive serves TLS as soon as there is a certificate.
        test_mode: use a self-signed certificate that is made at start. Off unless set; the
            official default is on.
        cert_path, key_path: PEM files: the chain, the server's own certificate first; its key.
        need_client_auth: other than none needs `auth_client` and `trust_cert_path`.
        auth_client: whether client certificates are verified.
        trust_cert_path: PEM file of the authorities that sign client certificates.
        enable: the server's own connections to others, as the broker's to name servers, use TLS.
        client_auth_server: whether the certificates of those others are verified. On unless set;
            the official default is off.
        client_trust_cert_path: PEM file of the authorities to trust; empty: those of the system.
        client_cert_path, client_key_path: the certificate to show to them.
        protocols, ciphers: of 5.4: the versions of TLS and the cipher suites, of servers and
            clients, comma-separated; empty: the usual ones.
        config_file: wins over every other source; may be missing if it is the default one.
    """

    mode: TlsMode = field(default=TlsMode.PERMISSIVE, name="tls.server.mode")
    test_mode: bool = field(default=False, name="tls.test.mode.enable")
    cert_path: str = field(default="", name="tls.server.certPath")
    key_path: str = field(default="", name="tls.server.keyPath")
    key_password: str = field(default="", name="tls.server.keyPassword")
    need_client_auth: ClientAuth = field(
        default=ClientAuth.NONE, name="tls.server.need.client.auth"
    )
    auth_client: bool = field(default=False, name="tls.server.authClient")
    trust_cert_path: str = field(default="", name="tls.server.trustCertPath")
    enable: bool = field(default=False, name="tls.enable")
    client_auth_server: bool = field(default=True, name="tls.client.authServer")
    client_trust_cert_path: str = field(default="", name="tls.client.trustCertPath")
    client_cert_path: str = field(default="", name="tls.client.certPath")
    client_key_path: str = field(default="", name="tls.client.keyPath")
    client_key_password: str = field(default="", name="tls.client.keyPassword")
    protocols: str = field(default="", name="tls.protocols")
    ciphers: str = field(default="", name="tls.ciphers")
    config_file: str = field(default=DEFAULT_FILE, name=_FILE_KEY)

    def __repr__(self) -> str:
        # Without the passwords.
        return f"TlsConfig(mode={self.mode.value}, certPath={self.cert_path!r})"


def load_tls_config(*sources: Settings | str) -> tuple[TlsConfig, list[str]]:
    """Return the TLS settings among those of a server, and warnings for keys without effect.

    Later sources win, and `tls.config.file` wins over all of them.

    Raises:
        ConfigErrors: some values are not allowed.
        ConfigError: the file of `tls.config.file` cannot be read.
    """
    only = [settings_of(source).select(lambda key: key.startswith(PREFIX)) for source in sources]
    path = DEFAULT_FILE
    for source in only:
        for setting in source.settings:
            if setting.key == _FILE_KEY:
                path = setting.value.strip()
    if path != DEFAULT_FILE or _may_be_there(Path(path)):
        only.append(Settings.of_file(Path(path), _FILE_KEY))
    return load_config(TlsConfig, *only)


def _may_be_there(path: Path) -> bool:
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except PermissionError:
        return True  # its reader says so: without its settings, connections would be plain
    except OSError:
        return False


def without_tls(source: Settings | str) -> Settings:
    """Return the settings of a source that are not TLS's."""
    return settings_of(source).select(lambda key: not key.startswith(PREFIX))


def settings_of(source: Settings | str) -> Settings:
    """Return the settings of a source, which may be text without a name."""
    return Settings.of_text(source) if isinstance(source, str) else source
