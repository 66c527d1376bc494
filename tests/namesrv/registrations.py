"""Registrations for tests."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from pocketmq.namesrv.route_table import RegisterBrokerResult, RouteTable
from pocketmq.remoting.bodies.registration import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from pocketmq.remoting.headers.namesrv import RegisterBrokerRequestHeader

T = TypeVar("T")


def finished(steps: Generator[None, None, T]) -> T:
    """Execute all steps of some work; return its result."""
    try:
        while True:
            next(steps)
    except StopIteration as end:
        result: T = end.value
        return result


def registered(
    table: RouteTable,
    header: RegisterBrokerRequestHeader,
    body: RegisterBrokerBody,
    channel: object,
) -> RegisterBrokerResult | None:
    """Register a broker in one go."""
    return finished(table.register_broker(header, body, channel))


def header(
    broker_name: str = "b0", broker_id: int = 0, address: str = "10.0.0.1:10911", **more: Any
) -> RegisterBrokerRequestHeader:
    fields = {"cluster_name": "c0", "ha_server_addr": address.replace("10911", "10912"), **more}
    return RegisterBrokerRequestHeader(
        broker_name=broker_name, broker_addr=address, broker_id=broker_id, **fields
    )


def topic(name: str, perm: int = 6, queues: int = 4, flag: int = 0) -> TopicConfig:
    return TopicConfig(
        topic_name=name,
        perm=perm,
        read_queue_nums=queues,
        write_queue_nums=queues,
        topic_sys_flag=flag,
    )


def body(
    *topics: TopicConfig | str,
    version: int = 1,
    state: int = 0,
    filter_servers: list[str] | None = None,
) -> RegisterBrokerBody:
    configs = [topic(t) if isinstance(t, str) else t for t in topics]
    return RegisterBrokerBody(
        filter_server_list=filter_servers or [],
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            data_version=DataVersion(counter=version, state_version=state, timestamp=7),
            topic_config_table={config.topic_name: config for config in configs},
        ),
    )
