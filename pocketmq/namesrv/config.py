"""The settings of a name server, by RocketMQ's own property names (NamesrvConfig and the parts of
NettyServerConfig that apply here)."""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, field

from pocketmq.auth.settings import CHECKS as AUTH_CHECKS
from pocketmq.auth.settings import PROPERTIES as AUTH_PROPERTIES
from pocketmq.auth.settings import check_together
from pocketmq.monitoring.settings import CHECKS as MONITORING_CHECKS
from pocketmq.monitoring.settings import NO_PORT, check_target
from pocketmq.monitoring.settings import PROPERTIES as MONITORING_PROPERTIES
from pocketmq.remoting.settings.official_config_keys import (
    AUTH_CONFIG,
    NAMESRV_KEYS,
    REFUSED_BY_NAMESRV,
)
from pocketmq.remoting.settings.properties_file import (
    ConfigError,
    ConfigErrors,
    Settings,
    check_home,
    decode_properties,
    load_config,
    parse_properties,
    read_property,
)
from pocketmq.remoting.tls.tls_config import without_tls

log = logging.getLogger("pocketmq.namesrv")

#: Settings that cannot change while a name server runs.
FIXED: Final = AUTH_PROPERTIES | MONITORING_PROPERTIES
NEVER_CHANGED: Final = frozenset(
    {"configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome"}
)
#: The address is the command line's, also after a change that took no effect.
_NOT_TAKEN: Final = FIXED | NEVER_CHANGED | {"bindAddress", "listenPort"}

Port = Annotated[int, Meta(ge=0, le=65_535)]
Positive = Annotated[int, Meta(ge=1)]


def _in_home(name: str) -> str:
    path = Path("~", "namesrv", name)
    with contextlib.suppress(RuntimeError):  # no home directory: `load_namesrv_config` says so
        path = path.expanduser()
    return str(path)


class NamesrvConfig(msgspec.Struct, rename="camel"):
    """One name server.

    Attributes:
        bind_address: loopback unless set; the official default is every interface.
        listen_port: 0 picks a free one.
        server_channel_max_idle_time_seconds: a connection without traffic for so long is closed.
        max_connections_per_address: further connections from one address are closed. RocketMQ does
            not have this setting.
        kv_config_path: file of the key-value store, replaced on each change, the last one as .bak.
        config_store_path: file that UPDATE_NAMESRV_CONFIG writes the settings to.
        rocketmq_home: shown to admins, not used.
        scan_not_active_broker_interval: ms between looks for brokers that went silent.
        order_message_enable: routes carry the fixed queues of strictly ordered topics, from
            namespace ORDER_TOPIC_CONFIG of the key-value store.
        return_order_topic_config_to_broker: that namespace is the answer to a registration.
        support_acting_master: a group without master shows its smallest broker id as id 0.
        enable_all_topic_list, enable_topic_list: whether lists of topics are answered.
        need_wait_for_service: routes are refused for the first wait_seconds_for_service seconds, so
            that clients do not see half of the brokers after a restart.
        delete_topic_with_broker_registration: topics missing in a registration are deleted. Brokers
            must then always register all their topics (enableSingleTopicRegister=false).
        config_black_list: settings, joined by `;`, that UPDATE_NAMESRV_CONFIG may not change.
        auth_file_path: file of users and access lists.
        authentication_enabled and the following: see `pocketmq.auth.settings.AuthSettings`; none
            of them changes while the name server runs.
        metrics_exporter_type and the following: see `pocketmq.monitoring.settings`; likewise.
            RocketMQ has them for brokers only.
    """

    bind_address: str = "127.0.0.1"
    listen_port: Port = 9876
    server_channel_max_idle_time_seconds: Positive = 120
    max_connections_per_address: Positive = 5_000
    rocketmq_home: str = ""
    kv_config_path: str = field(default_factory=lambda: _in_home("kvConfig.json"))
    config_store_path: str = field(default_factory=lambda: _in_home("namesrv.properties"))
    scan_not_active_broker_interval: Positive = 5_000
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    wait_seconds_for_service: Annotated[int, Meta(ge=0)] = 45
    delete_topic_with_broker_registration: bool = False
    config_black_list: str = "configBlackList;configStorePath;kvConfigPath"
    auth_file_path: str = field(default_factory=lambda: _in_home("auth.json"))
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""
    metrics_exporter_type: str = "DISABLE"
    metrics_prom_exporter_port: Port = 5557
    metrics_prom_exporter_host: str = ""
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = ""
    metric_grpc_exporter_time_out_in_mills: Positive = 3_000
    metric_grpc_exporter_interval_in_mills: Positive = 60_000
    metric_logging_exporter_interval_in_mills: Positive = 10_000
    metrics_label: str = ""
    metrics_in_delta: bool = False
    metrics_otel_cardinality_limit: Annotated[int, Meta(ge=2)] = 2_000
    health_port: Annotated[int, Meta(ge=-1, le=65_535)] = NO_PORT

    def __repr__(self) -> str:
        # Some of the settings are passwords.
        return f"NamesrvConfig({self.bind_address!r}, {self.listen_port})"


def load_namesrv_config(*sources: Settings | str) -> tuple[NamesrvConfig, list[str]]:
    """Return the settings of official namesrv.conf files, and warnings for keys without effect.

    Later sources win; a text is a file without a name. The settings of TLS are left to
    `load_tls_config`.

    Raises:
        ConfigErrors: some values are not allowed.
    """
    config, warnings = load_config(
        NamesrvConfig,
        *map(without_tls, sources),
        known=NAMESRV_KEYS | AUTH_CONFIG,
        checks={**AUTH_CHECKS, **MONITORING_CHECKS, **REFUSED_BY_NAMESRV},
    )
    try:
        check_home("kvConfigPath", config.kv_config_path)
        check_home("configStorePath", config.config_store_path)
        if config.authentication_enabled:
            check_home("authFilePath", config.auth_file_path)
    except ConfigError as error:
        raise ConfigErrors([error], warnings) from None
    check_together(config, warnings)
    check_target(config, warnings)
    return config, warnings


def take_kept(config: NamesrvConfig) -> None:
    """Take over the settings that were changed at run time and kept in configStorePath.

    For a name server that was started without a file, or with one that it cannot write. Log a
    warning for each setting that changes. Invalid settings are skipped with a warning, as are the
    settings that cannot change while a name server runs.
    """
    path = Path(config.config_store_path)
    try:
        content = path.read_bytes() if path.exists() else b""
    except OSError as error:
        log.warning("settings file %s cannot be read and is ignored: %s", path, error)
        return
    fields = dict(
        zip(NamesrvConfig.__struct_encode_fields__, NamesrvConfig.__struct_fields__, strict=True)
    )
    for key, text in parse_properties(decode_properties(content)[0]).items():
        if key not in fields or key in _NOT_TAKEN:
            continue
        try:
            value = read_property(NamesrvConfig, key, text)
        except ConfigError as error:
            log.warning("setting %s in %s is ignored: %s", key, path, error)
            continue
        before = getattr(config, fields[key])
        if value != before:
            log.warning(
                "setting %s is %s, as set at run time, instead of %s; it is kept in %s",
                key, value, before, path,
            )  # fmt: skip
            setattr(config, fields[key], value)
