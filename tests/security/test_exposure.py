"""Servers that listen beyond this machine and ask nobody for a signature say so."""

from __future__ import annotations

import logging

import pytest

from pocketmq.cluster_proxy import ClusterProxy
from pocketmq.embedded import EmbeddedServer
from pocketmq.proxy.config import ProxyConfig
from pocketmq.remoting.settings.properties_file import ConfigError
from pocketmq.remoting.tls.tls_config import ClientAuth, TlsConfig, TlsMode
from tests.security.conftest import PROPERTIES

WARNING = " listens on 0.0.0.0 without authentication"


@pytest.mark.parametrize(
    ("properties", "warned"),
    [
        ({}, ["the broker", "the name server", "the proxy"]),
        # Grants are not needed: the warning is about strangers.
        ({"authenticationEnabled": "true"}, []),
        (PROPERTIES, []),
    ],
)
async def test_each_exposed_server_warns_once(
    properties: dict[str, str], warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with EmbeddedServer(
            bind="0.0.0.0", advertise="127.0.0.1", grpc_port=0, properties=properties
        ):
            pass
    lines = [line for line in caplog.messages if WARNING in line]
    assert sorted(line.partition(WARNING)[0] for line in lines) == warned


INNER = '{"accessKey":"inner","secretKey":"inner-password-1"}'
CLIENT_CERTIFICATES = TlsConfig(mode=TlsMode.ENFORCING, need_client_auth=ClientAuth.REQUIRE)
OPEN_RELAY = "signs the requests of everybody who reaches its port as a super user"


@pytest.mark.parametrize(
    ("tls", "warns"),
    [(TlsConfig(), True), (CLIENT_CERTIFICATES, False)],
)
def test_a_proxy_that_signs_for_everybody_says_so(
    tls: TlsConfig, warns: bool, caplog: pytest.LogCaptureFixture
) -> None:
    config = ProxyConfig(inner_client_authentication_credentials=INNER)
    ClusterProxy(config, tls=tls)
    assert (OPEN_RELAY in caplog.text) == warns


@pytest.mark.parametrize("address", ["", "0.0.0.0", "192.0.2.1", "::"])
def test_a_proxy_does_not_sign_for_everybody_beyond_this_machine(address: str) -> None:
    config = ProxyConfig(bind_address=address, inner_client_authentication_credentials=INNER)
    with pytest.raises(ConfigError, match=OPEN_RELAY):
        ClusterProxy(config)
    ClusterProxy(config, tls=CLIENT_CERTIFICATES)
    config.authentication_enabled = True
    ClusterProxy(config)
