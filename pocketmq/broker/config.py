"""The settings of a broker: RocketMQ's property names with the defaults of 5.3.3.

A `broker.conf` of the official broker loads as it is. `BrokerConfig` extends the store's settings,
since the official file holds both. Times are milliseconds unless the name says otherwise.
"""

from __future__ import annotations

import math
import os
import re
import socket
from collections.abc import Mapping
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Final, Literal

from msgspec import Meta, field

from pocketmq.auth.settings import CHECKS as AUTH_CHECKS
from pocketmq.auth.settings import check_together
from pocketmq.message.limits import DEFAULT_REGION
from pocketmq.monitoring.settings import CHECKS as MONITORING_CHECKS
from pocketmq.monitoring.settings import NO_PORT, check_collector, check_target
from pocketmq.remoting.machine_memory import memory
from pocketmq.remoting.settings.exposure import is_loopback
from pocketmq.remoting.settings.official_config_keys import BROKER_KEYS, REFUSED_BY_BROKER
from pocketmq.remoting.settings.properties_file import (
    Check,
    ConfigError,
    ConfigErrors,
    Settings,
    load_config,
)
from pocketmq.remoting.tls.tls_config import without_tls
from pocketmq.store.config import StoreConfig
from pocketmq.store.epochs import FILE_NAME as EPOCH_FILE

Port = Annotated[int, Meta(ge=0, le=65535)]
Millis = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
Perm = Annotated[int, Meta(ge=0, le=15)]
Name = Annotated[str, Meta(min_length=1, description="a name")]


class BrokerRole(Enum):
    """A master takes sends (a SYNC_MASTER waits for replicas); a slave copies a master's log."""

    ASYNC_MASTER = "ASYNC_MASTER"
    SYNC_MASTER = "SYNC_MASTER"
    SLAVE = "SLAVE"


LOOPBACK: Final = "127.0.0.1"
WILDCARDS: Final = ("", "0.0.0.0", "::")
MASTER_ID: Final = 0
NO_ID: Final = -1
_SLAVE_MEMORY: Final = 10  # percent of the RAM that a slave's limit is lower than a master's
NAMESRV_PORT: Final = 9876
HA_PORT: Final = 10912
CONTROLLER_PORT: Final = 9878


class BrokerConfig(StoreConfig, kw_only=True, rename="camel"):
    """All settings of one broker process.

    RocketMQ does not have these properties:

    - `vip_channel_enable`: serve listenPort-2 too, as the official broker always does;
    - `max_connections_per_address`: further connections from one address are closed;
    - `max_in_flight_bytes`: bytes of sends that are stored but not yet answered; above it, sends
      are answered SYSTEM_BUSY;
    - `max_auto_created_groups`: from this number of groups on, only an admin can create more;
    - `max_auto_created_topics`: the same for topics; retry topics do not count, since the number of
      groups limits them;
    - `max_held_pulls`: the most pulls held at once; at most a tenth of them from one connection,
      and half of them from one address; further pulls are answered at once;
    - `max_child_request_num`: the most children of a batch request; a larger batch is refused;
    - `batch_pull_enough_bytes`, `batch_pull_enough_messages`: a batch of pulls that has found this
      much is answered without reading its other queues;
    - `max_large_transfer_count`, `max_large_transfer_bytes`: the limits of one answer to pocketmq's
      own consumers, in place of the four `max_transfer` settings. 256 messages in one answer cost
      half the CPU time of 32. With answers of 512 KiB, Spark's reads take a sixth less CPU time in
      all than with 256 KiB; with 1 MiB, where a connection is paused, they take more again;
    - `trace_grpc_exporter_target`: `http://host:port` of an OpenTelemetry collector that gets spans
      of messages with a W3C context; empty: no spans;
    - `ha_allowed_addresses`: see `pocketmq.broker.replication.allowed_replicas`;
    - `health_port`: see `pocketmq.monitoring.settings`, also for all settings of metrics;
    - `rebalance_lock_max_live_time`: a system property of the official broker
      (rocketmq.broker.rebalance.lockMaxLiveTime).
    """

    # The file of these settings; the ones that UPDATE_BROKER_CONFIG may not change (joined by ;)
    broker_config_path: str = ""  # changes are saved there; empty: in the store
    config_black_list: str = "configBlackList;brokerConfigPath"

    # Identity and addresses
    namesrv_addr: str = ""  # host:port;host:port
    broker_cluster_name: Name = "DefaultCluster"
    broker_name: Name = field(default_factory=socket.gethostname)
    broker_id: Annotated[int, Meta(ge=-1)] = MASTER_ID  # -1: a controller gives it
    bind_address: str = LOOPBACK
    # The address given to clients; empty: bindAddress, or this host's if that is a wildcard.
    broker_ip1: str = field(default="", name="brokerIP1")
    listen_port: Port = 10911  # 0: any free port
    vip_channel_enable: bool = True
    server_channel_max_idle_time_seconds: Count = 120
    max_connections_per_address: Count = 5_000

    # Topics and groups
    broker_permission: Perm = 6  # 4 read, 2 write
    auto_create_topic_enable: bool = True
    default_topic_queue_nums: Annotated[int, Meta(ge=1, le=65535)] = 8
    cluster_topic_enable: bool = True
    broker_topic_enable: bool = True
    trace_topic_enable: bool = False
    msg_trace_topic_name: str = "RMQ_SYS_TRACE_TOPIC"
    auto_create_subscription_group: bool = True
    max_auto_created_groups: Count = 20_000
    max_auto_created_topics: Count = 20_000
    validate_system_topic_when_update_topic: bool = True
    enable_mixed_message_type: bool = False
    # Whether slaves and tools of 5.4 and later get the tables in pages, and entries of one page.
    enable_split_metadata: bool = True
    split_metadata_size: Annotated[int, Meta(ge=1)] = 2_000
    # Of the lists that one request deletes, per second; 0 or less: without a limit.
    batch_delete_topic_max_rate: float = 10.0
    batch_delete_subscription_group_max_rate: float = 10.0

    # Delayed and timed messages
    delay_offset_update_version_step: Count = 200
    recall_message_enable: bool = False
    # Recalls name topic+unique key, as up to 5.3.3; from 5.4 on it is false, for the key alone.
    # This broker reads both.
    append_topic_for_timer_delete_key: bool = True
    allow_recall_when_broker_not_writeable: bool = True

    # Sending
    region_id: str = DEFAULT_REGION
    trace_on: bool = True
    reject_transaction_message: bool = False
    start_accept_send_request_time_stamp: int = 0
    send_thread_pool_queue_capacity: Count = 10_000  # sends stored but not yet answered
    max_in_flight_bytes: Count = 256 * 1024 * 1024

    # Transactions
    transaction_time_out: Millis = 6_000  # until the first check of a half message
    transaction_check_max: Count = 15
    transaction_check_interval: Millis = 30_000
    transaction_op_msg_max_size: Count = 4_096
    transaction_op_batch_interval: Millis = 3_000

    # Replies, offsets
    store_reply_message_enable: bool = True
    use_server_side_reset_offset: bool = True

    # Pulling
    long_polling_enable: bool = True
    short_polling_time_mills: Millis = 1_000
    lite_pull_message_enable: bool = True
    reject_pull_consumer_enable: bool = False
    pull_thread_pool_queue_capacity: Count = 100_000
    max_held_pulls: Count = 100_000
    max_transfer_count_on_message_in_memory: Count = 32
    max_transfer_bytes_on_message_in_memory: Count = 256 * 1024
    max_transfer_count_on_message_in_disk: Count = 8
    max_transfer_bytes_on_message_in_disk: Count = 64 * 1024
    max_large_transfer_count: Count = 512
    max_large_transfer_bytes: Count = 512 * 1024
    access_message_in_memory_max_ratio: Annotated[int, Meta(ge=0, le=100)] = 40  # % of RAM

    # POP: waiting pops, checkpoints in memory, the revive log, retry topics
    pop_polling_size: Count = 1_024  # waiting pops of one group at one queue
    max_pop_polling_size: Count = 100_000
    pop_long_polling_force_notify_interval: Annotated[int, Meta(ge=0)] = 800  # messages; 0: never
    # Whether filters of notifications count, and while how many messages at most are not popped.
    use_message_filter_for_notification: bool = True
    max_message_filter_num_for_notification: Annotated[int, Meta(ge=0, le=1_024)] = 64
    enable_pop_buffer_merge: bool = True
    pop_ck_stay_buffer_time: Millis = 10_000
    pop_ck_stay_buffer_time_out: Millis = 3_000
    pop_ck_max_buffer_size: Count = 200_000
    pop_ck_offset_max_queue_size: Count = 20_000
    enable_pop_batch_ack: bool = False
    revive_queue_num: Annotated[int, Meta(ge=1, le=998)] = 8
    enable_retry_topic_v2: bool = False
    retrieve_message_from_pop_retry_topic_v1: bool = True
    # Whether a message comes back in the queue of the retry topic that has the number of its own.
    use_separate_retry_queue: bool = False
    pop_from_retry_probability: Annotated[int, Meta(ge=0, le=100)] = 20  # %
    # Pops by priority: whether the last queue comes first, and how often retries do.
    priority_order_asc: bool = True
    pop_from_retry_probability_for_priority: Annotated[int, Meta(ge=0, le=100)] = 0  # %
    pop_response_return_actual_retry_topic: bool = False
    init_pop_offset_by_check_msg_in_mem: bool = True
    enable_pop_message_threshold: bool = False
    pop_inflight_message_threshold: Count = 10_000
    default_message_request_mode: Literal["PULL", "POP"] = "PULL"
    default_pop_share_queue_num: int = -1
    server_load_balancer_enable: bool = True

    # Batch-Protocol
    max_child_request_num: Annotated[int, Meta(ge=1, le=1000)] = 1000
    batch_pull_enough_bytes: Count = 4 * 1024 * 1024
    batch_pull_enough_messages: Count = 10_000

    # SQL92 filters; of the official Bloom filter only the sizes are reproduced
    enable_property_filter: bool = False
    filter_support_retry: bool = False
    filter_data_clean_time_span: Millis = 24 * 3600 * 1000  # until an unused filter is removed
    expect_consumer_num_use_filter: Count = 32
    max_error_rate_of_bloom_filter: Annotated[int, Meta(ge=1, le=99)] = 20  # %

    # Consumers
    notify_consumer_ids_changed_enable: bool = True
    channel_expired_timeout: Millis = 120_000
    rebalance_lock_max_live_time: Millis = 60_000  # of a queue's lock for ordered consumption
    flush_consumer_offset_interval: Millis = 5_000
    consumer_offset_update_version_step: Count = 500

    # Registration
    register_name_server_period: Annotated[int, Meta(ge=10_000, le=60_000)] = 30_000
    register_broker_timeout_mills: Millis = 24_000
    broker_heartbeat_interval: Millis = 1_000
    compressed_register: bool = False

    # Replication (pocketmq.broker.replication)
    broker_role: BrokerRole = BrokerRole.ASYNC_MASTER
    ha_listen_port: Port = 0  # 0: listenPort + 1
    # The address that slaves connect to; empty: that of clients.
    broker_ip2: str = field(default="", name="brokerIP2")
    ha_master_address: str = ""  # host:port; empty: from the name servers
    ha_allowed_addresses: str = ""  # of slaves: 10.0.0.2;10.1.0.0/16
    ha_send_heartbeat_interval: Millis = 5_000
    ha_housekeeping_interval: Millis = 20_000
    ha_transfer_batch_size: Annotated[int, Meta(ge=1, le=4 * 1024 * 1024 - 12)] = 32 * 1024
    ha_max_gap_not_in_sync: Count = 256 * 1024 * 1024
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: Count = 100 * 1024 * 1024
    in_sync_replicas: Count = 1  # including the master
    min_in_sync_replicas: Count = 1
    enable_auto_in_sync_replicas: bool = False
    enable_slave_acting_master: bool = False
    slave_timeout: Millis = 3_000  # how long a send waits for replicas
    slave_read_enable: bool = False
    offset_check_in_slave: bool = False

    # A member of a controller group (pocketmq.broker.controller)
    enable_controller_mode: bool = False
    controller_addr: str = ""  # host:port;host:port
    all_ack_in_sync_state_set: bool = False
    read_un_committed: bool = False
    ha_max_time_slave_not_catchup: Millis = 15_000
    sync_from_last_file: bool = False
    async_learner: bool = False
    broker_election_priority: int = 2**31 - 1  # the lowest value wins
    controller_heart_beat_timeout_mills: Millis = 10_000
    sync_broker_metadata_period: Millis = 5_000
    sync_controller_metadata_period: Millis = 10_000
    store_path_epoch_file: str = ""  # empty: epochFileCheckpoint below storePathRootDir

    # Authentication and authorization (pocketmq.auth)
    authentication_enabled: bool = False
    authorization_enabled: bool = False
    init_authentication_user: str = ""
    inner_client_authentication_credentials: str = ""
    authentication_whitelist: str = ""
    authorization_whitelist: str = ""

    # Metrics and health (pocketmq.monitoring)
    metrics_exporter_type: str = "DISABLE"
    metrics_prom_exporter_port: Port = 5557
    metrics_prom_exporter_host: str = ""
    metrics_grpc_exporter_target: str = ""
    metrics_grpc_exporter_header: str = ""
    metric_grpc_exporter_time_out_in_mills: Millis = 3_000
    metric_grpc_exporter_interval_in_mills: Millis = 60_000
    metric_logging_exporter_interval_in_mills: Millis = 10_000
    metrics_label: str = ""
    metrics_in_delta: bool = False
    metrics_otel_cardinality_limit: Annotated[int, Meta(ge=2)] = 2_000
    trace_grpc_exporter_target: str = ""
    health_port: Annotated[int, Meta(ge=-1, le=65535)] = NO_PORT

    def __repr__(self) -> str:
        # Some of the settings are passwords.
        return f"BrokerConfig({self.broker_name!r}, {self.store_path_root_dir!r})"

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The addresses in `namesrv_addr`."""
        return tuple(address for part in self.namesrv_addr.split(";") if (address := part.strip()))

    @property
    def message_memory(self) -> int:
        """Bytes before the end of the commit log within which a message counts as in memory."""
        ratio = self.access_message_in_memory_max_ratio
        if self.is_slave:
            ratio = max(ratio - _SLAVE_MEMORY, 0)
        return memory() * ratio // 100

    @property
    def is_slave(self) -> bool:
        """Whether the broker copies a master's log."""
        return self.broker_role is BrokerRole.SLAVE

    @property
    def controllers(self) -> tuple[str, ...]:
        """The addresses in `controller_addr`."""
        parts = self.controller_addr.split(";")
        return tuple(address for part in parts if (address := part.strip()))

    @property
    def epoch_file(self) -> Path:
        """The file of the commit log's epochs."""
        if self.store_path_epoch_file:
            return Path(self.store_path_epoch_file).expanduser()
        return self.root / EPOCH_FILE

    @property
    def ha_host(self) -> str:
        """The address that slaves connect to."""
        return self.broker_ip2 or self.advertised_host

    @property
    def counts_replicas(self) -> bool:
        """Whether messages are acknowledged only when replicas report them."""
        if self.enable_controller_mode:
            most = max(self.in_sync_replicas, self.min_in_sync_replicas)
            return self.all_ack_in_sync_state_set or most > 1
        return self.broker_role is BrokerRole.SYNC_MASTER and (
            self.in_sync_replicas > 1 or self.enable_slave_acting_master
        )

    @property
    def most_ha_bytes_per_second(self) -> float:
        """The most bytes of the log that a slave gets per second."""
        return self.max_ha_transfer_byte_in_second if self.ha_flow_control_enable else math.inf

    @property
    def advertised_host(self) -> str:
        """The address that clients connect to."""
        if self.broker_ip1:
            return self.broker_ip1
        return _own_address() if self.bind_address in WILDCARDS else self.bind_address


def _own_address() -> str:
    # Find the interface with the default route; connecting a datagram socket sends nothing.
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # a documentation address, never answered
            return str(probe.getsockname()[0])
        except OSError:
            return LOOPBACK


def _check_name_servers(value: str) -> str | None:
    """Check that each address has a port: host:port, or [IPv6]:port."""
    return _check_addresses("namesrvAddr", value, NAMESRV_PORT)


def _check_controllers(value: str) -> str | None:
    return _check_addresses("controllerAddr", value, CONTROLLER_PORT)


def _check_ha_master(value: str) -> str | None:
    return _check_addresses("haMasterAddress", value, HA_PORT)


Network = IPv4Network | IPv6Network


def networks_of(text: str) -> tuple[Network, ...]:
    """Read addresses and networks (`10.0.0.2;10.1.0.0/16`). Raises ValueError."""
    parts = (part.strip() for part in re.split("[;,]", text))
    return tuple(ip_network(part) for part in parts if part)


def _check_allowed(value: str) -> str | None:
    try:
        networks_of(value)
    except ValueError as error:
        return f"haAllowedAddresses: {error}; write addresses and networks as 10.0.0.2;10.1.0.0/16"
    return None


def _check_addresses(key: str, value: str, usual_port: int) -> str | None:
    for part in value.split(";"):
        address = part.strip()
        if not address:
            continue
        host, colon, port = address.rpartition(":")
        if not colon or address.endswith("]") or (":" in host and not host.startswith("[")):
            host = f"[{address}]" if ":" in address and not address.startswith("[") else address
            return f"{key} {address!r} has no port: use {host}:{usual_port}"
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) <= 65535:
            return f"{key} {address!r} is not host:port: the port must be a number from 1 to 65535"
    return None


#: Checks of single properties; they return what is wrong with a value.
CHECKS: Final[Mapping[str, Check]] = {
    "controllerAddr": _check_controllers,
    "haAllowedAddresses": _check_allowed,
    "haMasterAddress": _check_ha_master,
    "namesrvAddr": _check_name_servers,
    **AUTH_CHECKS,
    **MONITORING_CHECKS,
    "traceGrpcExporterTarget": check_collector("traceGrpcExporterTarget"),
    **REFUSED_BY_BROKER,
}


def load_broker_config(*sources: Settings | str) -> tuple[BrokerConfig, list[str]]:
    """Return the settings of official broker.conf files, and warnings for keys without effect.

    Later sources win; a string is the text of a file. `load_tls_config` reads the TLS settings. If
    no source sets `namesrvAddr`, the environment variable NAMESRV_ADDR does, as with the official
    broker.

    Raises:
        ConfigErrors: some values are not allowed, or contradict each other. A slave needs a
            brokerId above 0, and a master has 0: otherwise routes would name a second master that
            does not have the first one's messages. A member of a controller group needs
            haListenPort if requests have to be signed, and a broker that waits for replicas needs
            their addresses.
    """
    config, warnings = load_config(
        BrokerConfig, *map(without_tls, sources), known=BROKER_KEYS, checks=CHECKS
    )
    if not config.namesrv_addr:
        address = os.environ.get("NAMESRV_ADDR", "")
        wrong = _check_name_servers(address)
        if wrong is not None:
            where = "$NAMESRV_ADDR"
            error = ConfigError("namesrvAddr", address, "host:port", where=where, text=wrong)
            raise ConfigErrors([error], warnings)
        config.namesrv_addr = address
    check_together(config, warnings)
    check_target(config, warnings)
    _check_identity(config, warnings)
    _check_replicas(config, warnings)
    return config, warnings


def check_ha_port(config: BrokerConfig) -> None:
    """Check that haListenPort is set on a member of a group if requests must be signed.

    Raises:
        ConfigError: haListenPort is not set. The HA port has no signatures, so it must be opened
            deliberately. A single broker leaves it closed instead; a member needs it.
    """
    if config.authentication_enabled and not config.ha_listen_port:
        text = (
            "enableControllerMode with authenticationEnabled needs haListenPort: whoever reaches "
            "it gets the whole log, without a password. Let only the group's members reach it"
        )
        raise ConfigError("haListenPort", "0", "a port", text=text)


def _check_replicas(config: BrokerConfig, warnings: list[str]) -> None:
    """Raise ConfigErrors if any host could acknowledge messages as a replica."""
    if (
        config.counts_replicas
        and not config.authentication_enabled
        and not config.ha_allowed_addresses.strip()
        and not is_loopback(config.bind_address)
    ):
        text = (
            f"sends wait for replicas, and bindAddress = {config.bind_address!r} lets other "
            "machines reach the HA port: set haAllowedAddresses to the addresses of the replicas "
            "(10.0.0.2;10.1.0.0/16), or authenticationEnabled = true here and "
            "innerClientAuthenticationCredentials in all of them. Otherwise anyone who reaches "
            "the port can acknowledge messages that no replica has"
        )
        error = ConfigError("haAllowedAddresses", "", "addresses of replicas", text=text)
        raise ConfigErrors([error], warnings)


def _check_identity(config: BrokerConfig, warnings: list[str]) -> None:
    """Raise ConfigErrors if role and brokerId contradict each other; a controller assigns both."""
    if config.enable_controller_mode:
        if not config.controllers:
            text = "enableControllerMode needs controllerAddr: host:port;host:port"
            error = ConfigError("controllerAddr", "", "host:port", text=text)
            raise ConfigErrors([error], warnings)
        try:
            check_ha_port(config)
        except ConfigError as error:
            raise ConfigErrors([error], warnings) from None
        config.broker_role, config.broker_id = BrokerRole.SLAVE, NO_ID
        return
    if config.is_slave == (config.broker_id > MASTER_ID) and config.broker_id >= MASTER_ID:
        return
    if config.broker_id < MASTER_ID:
        text = f"brokerId = {config.broker_id} is only possible with enableControllerMode = true"
    elif config.is_slave:
        text = "brokerRole = SLAVE needs a brokerId above 0, which no other slave of the group has"
    else:
        text = (
            f"brokerId = {config.broker_id} is a slave's: set brokerRole = SLAVE as well, or "
            f"brokerId = {MASTER_ID} for a master"
        )
    value = str(config.broker_id)
    raise ConfigErrors([ConfigError("brokerId", value, "0, or a slave's", text=text)], warnings)
