"""The settings of a proxy, by RocketMQ's own property names (ProxyConfig of 5.3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from pocketmq.auth.settings import CHECKS as AUTH_CHECKS
from pocketmq.auth.settings import check_together
from pocketmq.remoting.settings.official_config_keys import PROXY_KEYS
from pocketmq.remoting.settings.properties_file import ConfigError, Settings, load_config
from pocketmq.remoting.tls.tls_config import settings_of, without_tls

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]


class ProxyConfig(msgspec.Struct, rename="camel"):
    """One proxy. Times in ms, sizes in bytes.

    Attributes:
        bind_address: loopback unless set; the official default is every interface.
        grpc_server_port: 0 picks a free one.
        namesrv_addr: name servers, joined by `;`. Not used by a proxy within a broker.
        use_endpoint_port_from_request: routes contain the address and port to which the client
            connected, so that they work with NAT and port mappings; false: grpc_server_port.
        grpc_max_inbound_message_size: of one request.
        grpc_client_idle_time_mills: a connection without calls for this long is closed.
        grpc_client_consumer_min_long_polling_timeout_millis,
            grpc_client_consumer_max_long_polling_timeout_millis: how long a receive waits.
        max_message_size: of one message's body.
        max_delay_time_mills: how far ahead a delivery may be.
        min_invisible_time_mills_for_recv, max_invisible_time_mills: the range that consumers may
        request.
        enable_topic_message_type_check: topics accept only messages of their type (message.type).
        enable_grpc_reflection: tools such as grpcurl may list the methods.
        send_latency_enable, start_detector_enable, detect_interval, detect_timeout: how failing
            brokers are avoided (RIP-63); at run time, the key-value table of the name server
            overrides them.
        auth_file_path: file of users and access lists.
        authentication_enabled and the following: see `pocketmq.auth.settings.AuthSettings`.
    """

    bind_address: str = "127.0.0.1"
    grpc_server_port: Port = 8081
    namesrv_addr: str = ""
    use_endpoint_port_from_request: bool = True
    grpc_max_inbound_message_size: Positive = 130 << 20
    grpc_client_idle_time_mills: Positive = 120_000
    grpc_client_consumer_min_long_polling_timeout_millis: NotNegative = 5_000
    grpc_client_consumer_max_long_polling_timeout_millis: Positive = 20_000
    max_message_size: Positive = 4 << 20
    max_delay_time_mills: Positive = 86_400_000
    min_invisible_time_mills_for_recv: NotNegative = 10_000
    max_invisible_time_mills: Positive = 43_200_000
    enable_topic_message_type_check: bool = True
    enable_grpc_reflection: bool = False
    send_latency_enable: bool = True
    start_detector_enable: bool = True
    detect_interval: Positive = 2_000
    detect_timeout: Positive = 200
    auth_file_path: str = ""
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""

    def __repr__(self) -> str:
        # Some of the settings are passwords.
        return f"ProxyConfig({self.bind_address!r}, {self.grpc_server_port})"


#: The settings of a broker that apply to the proxy in its process.
LOCAL_KEYS: Final = frozenset(
    {
        "useEndpointPortFromRequest",
        "grpcMaxInboundMessageSize",
        "grpcClientIdleTimeMills",
        "grpcClientConsumerMinLongPollingTimeoutMillis",
        "grpcClientConsumerMaxLongPollingTimeoutMillis",
        "maxDelayTimeMills",
        "minInvisibleTimeMillsForRecv",
        "maxInvisibleTimeMills",
        "enableTopicMessageTypeCheck",
        "enableGrpcReflection",
    }
)

#: Settings of TlsConfig for which the official proxy has different names.
_TLS_NAMES: Final = {
    "tlsTestModeEnable": "tls.test.mode.enable",
    "tlsCertPath": "tls.server.certPath",
    "tlsKeyPath": "tls.server.keyPath",
    "tlsKeyPassword": "tls.server.keyPassword",
}


def load_proxy_config(*sources: Settings | str) -> tuple[ProxyConfig, list[str]]:
    """Return the settings of a proxy, and warnings for keys without effect; later sources win.

    Raises:
        ConfigErrors: some values are not allowed.
    """
    config, warnings = load_config(
        ProxyConfig,
        *(without_tls(source).select(lambda key: key not in _TLS_NAMES) for source in sources),
        known=PROXY_KEYS,
        checks=AUTH_CHECKS,
    )
    check_together(config, warnings)
    return config, warnings


def load_local_config(*sources: Settings | str) -> ProxyConfig:
    """Return the settings of a broker that apply to the proxy in its process; later sources win.

    Raises:
        ConfigErrors: some values are not allowed.
    """
    config, _ = load_config(
        ProxyConfig, *(settings_of(source).select(LOCAL_KEYS.__contains__) for source in sources)
    )
    return config


def without_proxy(source: Settings | str) -> Settings:
    """Return the settings of a source that are not those of the proxy in a broker's process."""
    return settings_of(source).select(lambda key: key not in LOCAL_KEYS)


def tls_settings(source: Settings) -> Settings:
    """Return the TLS settings in a source, by the names of TlsConfig."""
    return source._replace(
        settings=tuple(
            setting._replace(key=_TLS_NAMES.get(setting.key, setting.key))
            for setting in source.settings
        )
    )


def read_proxy_file(path: Path) -> Settings:
    """Read the settings of a file: an official rmq-proxy.json, or properties.

    Raises:
        ConfigError: the file cannot be read.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        why = error.strerror or error
        raise ConfigError("-c", str(path), f"a readable file ({why})") from None
    if not text.lstrip().startswith(b"{"):
        return Settings.of_file(path)
    try:
        values = msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise ConfigError("-c", str(path), f"a flat JSON object ({error})") from None
    return Settings.of_options(
        [(key, _text(value)) for key, value in values.items() if value is not None], str(path)
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
