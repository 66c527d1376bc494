"""The settings of a proxy, by RocketMQ's own property names (ProxyConfig of 5.3.3)."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta, field

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]


class ProxyConfig(msgspec.Struct, rename="camel"):
    """One proxy. Times in ms, sizes in bytes.

    Attributes:
        bind_address: loopback unless set; the official default is every interface.
        grpc_server_port: 0 picks a free one.
        namesrv_addr: name servers, joined by `;`. Not used by a proxy within a broker.
        use_endpoint_port_from_request: routes name the address by which the client came, with its
            port, so that they hold behind NAT and port mappings; false: with grpc_server_port.
        grpc_max_inbound_message_size: of one request.
        grpc_client_idle_time_mills: a connection without a call for so long is closed.
        max_message_size: of one message's body.
        max_delay_time_mills: how far ahead a delivery may be.
        min_invisible_time_mills_for_recv, max_invisible_time_mills: what consumers may ask for.
        enable_topic_message_type_check: topics take only messages of their type (message.type).
        enable_grpc_reflection: tools such as grpcurl may ask which methods there are.
        send_latency_enable, start_detector_enable, detect_interval, detect_timeout: how brokers
            are avoided (RIP-63); the key-value table of the name server wins while it runs.
        tls_cert_path, tls_key_path, tls_test_mode_enable: the certificate; without one, a
            self-signed one is made at start.
        auth_file_path: file of users and access lists.
        authentication_enabled and the following: see `pocketmq.auth.settings.AuthSettings`.
    """

    bind_address: str = "127.0.0.1"
    grpc_server_port: Port = 8081
    namesrv_addr: str = ""
    use_endpoint_port_from_request: bool = True
    grpc_max_inbound_message_size: Positive = 130 << 20
    grpc_client_idle_time_mills: Positive = 120_000
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
    tls_test_mode_enable: bool = False
    tls_cert_path: str = ""
    tls_key_path: str = ""
    auth_file_path: str = ""
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = field(default="")

    def __repr__(self) -> str:
        # Some of the settings are passwords.
        return f"ProxyConfig({self.bind_address!r}, {self.grpc_server_port})"
