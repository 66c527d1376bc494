"""The online consumers: groups, their members, connections and subscriptions.

Heartbeats (code 34) add members; members are removed when they unregister, when their connection
closes, or after two minutes without a heartbeat. The broker notifies all members of a group when
one joins or leaves, or when its topics change, so that the group rebalances at once. Reference:
broker ConsumerManager, ConsumerGroupInfo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final

from pocketmq.broker.tables.consumer_filter import ConsumerFilters, NewExpressions, is_tag_type
from pocketmq.broker.tables.memberships import (
    MAX_GROUPS,
    MAX_GROUPS_OF_USER,
    REMOVED_AT_ONCE,
    Memberships,
)
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.monotonic import MonotonicClock, MonotonicMs
from pocketmq.remoting.serving.budget import text_bytes
from pocketmq.remoting.serving.long_requests import Steps
from pocketmq.remoting.serving.request import Caller

log = logging.getLogger(__name__)

BROADCASTING: Final = "BROADCASTING"
CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"  # pull consumers
SUBSCRIBE_ALL: Final = "*"

#: The most bytes, as estimated by `weight_of`, of the subscriptions of all groups.
MAX_WEIGHT: Final = 64 << 20
#: Groups with at most this weight do not count: the number of groups is limited, too.
SMALL_WEIGHT: Final = 4 << 10
_GROUP_SHARE: Final = 10
_OVERHEAD: Final = 750  # bytes of the objects of a subscription
_SLOTS: Final = 250  # bytes of the object of a tag or hash, and of its places in lists and sets


def weight_of(data: SubscriptionData) -> int:
    """Return an estimate of the bytes that a subscription takes."""
    texts = (data.topic, data.sub_string, data.expression_type, *data.tags_set)
    slots = len(data.tags_set) + len(data.code_set)
    return _OVERHEAD + _SLOTS * slots + sum(map(text_bytes, texts))


class ClientInfo:
    """One client, from its heartbeat, with its connection.

    A client can claim any group. So check `may_publish` or `may_consume` before sending it anything
    that it did not request. `caller` signed the heartbeat; None without authentication.
    """

    __slots__ = ("caller", "client_id", "connection", "language", "seen", "version")

    def __init__(
        self,
        connection: Any,
        client_id: str,
        language: str,
        version: int,
        seen: MonotonicMs,
        caller: Caller | None = None,
    ) -> None:
        self.caller = caller
        self.connection = connection
        self.client_id = client_id
        self.language = language
        self.version = version
        self.seen = seen  # time of its last heartbeat

    def may_publish(self, topic: str) -> bool:
        """Tell whether its user currently may send to the topic."""
        return self.caller is None or self.caller.may_publish(topic)

    def may_consume(self, group: str, *topics: str) -> bool:
        """Tell whether its user currently may consume in the group and from these topics."""
        return self.caller is None or self.caller.may_consume(group, *topics)


class Subscription:
    """One topic of a group; `codes` are the hashes of its tags, None for all messages."""

    __slots__ = ("codes", "data", "weight")

    def __init__(self, data: SubscriptionData) -> None:
        self.data = data
        self.weight = weight_of(data)
        everything = data.sub_string in ("", SUBSCRIBE_ALL)
        self.codes = None if everything else frozenset(data.code_set)

    @property
    def is_tag(self) -> bool:
        """Whether it filters by tag (TAG or no expression type), not by properties."""
        return is_tag_type(self.data.expression_type)


class ConsumerGroup:
    """One group: its members by connection, and its subscriptions."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.consume_type = ""
        self.message_model = ""
        self.consume_from_where = ""
        self.clients: dict[Any, ClientInfo] = {}
        self.subscriptions: dict[str, Subscription] = {}
        # Of the last heartbeat; None before the first one. Heartbeat v2 compares it.
        self.fingerprint: int | None = None

    @property
    def broadcasting(self) -> bool:
        """Whether every member gets every message, so that there is nothing to rebalance."""
        return self.message_model == BROADCASTING

    def client_ids(self) -> list[str]:
        """Return the client ids of all members, for GET_CONSUMER_LIST_BY_GROUP."""
        return [client.client_id for client in self.clients.values()]

    def find(self, client_id: str | None) -> ClientInfo | None:
        """Return the member with this client id."""
        for client in self.clients.values():
            if client.client_id == client_id:
                return client
        return None

    def reachable(self) -> list[ClientInfo]:
        """Return the members that may receive notifications to the group."""
        return [client for client in self.clients.values() if client.may_consume(self.name)]

    def join(self, client: ClientInfo, data: ConsumerData) -> bool:
        """Add or refresh a member; return True if it is new."""
        self.consume_type = data.consume_type
        self.message_model = data.message_model
        self.consume_from_where = data.consume_from_where
        new = client.connection not in self.clients
        self.clients[client.connection] = client
        return new

    def subscribe(self, subscriptions: Iterable[SubscriptionData]) -> bool:
        """Set the subscriptions from a member; return True if a topic was added or removed.

        Of two subscriptions to one topic, the one with the higher version (its time) stays.
        """
        changed = False
        topics = set()
        for data in subscriptions:
            topics.add(data.topic)
            known = self.subscriptions.get(data.topic)
            if known is None:
                changed = True
                self.subscriptions[data.topic] = Subscription(data)
            elif data.sub_version > known.data.sub_version:
                self.subscriptions[data.topic] = Subscription(data)
        for topic in [topic for topic in self.subscriptions if topic not in topics]:
            changed = True
            del self.subscriptions[topic]
        return changed


class ConsumerGroups:
    """All groups with a live member.

    `notify(group)` is called for each change about which members must be notified.
    `filters` has the SQL92 expressions of groups. For the limits see `MAX_WEIGHT`, of which one
    group may use a tenth, and `Memberships`.
    """

    def __init__(
        self,
        notify: Callable[[ConsumerGroup], None],
        clock: MonotonicClock,
        filters: ConsumerFilters | None = None,
        *,
        max_weight: int = MAX_WEIGHT,
        max_groups: int = MAX_GROUPS,
        max_groups_of_user: int = MAX_GROUPS_OF_USER,
    ) -> None:
        self._max_weight = max_weight
        self._weights: dict[str, int] = {}  # of the groups that count
        self._weight = 0
        self._notify = notify
        self._clock = clock
        self._log = LimitedLog(log)
        self._filters = filters
        self._groups: dict[str, ConsumerGroup] = {}
        self._memberships = Memberships(
            "consumer group",
            self.unregister,
            self._log,
            max_groups=max_groups,
            max_groups_of_user=max_groups_of_user,
        )

    def get(self, name: str) -> ConsumerGroup | None:
        """Return the group; None if no member is online."""
        return self._groups.get(name)

    def names(self) -> list[str]:
        """Return the groups that are online."""
        return list(self._groups)

    def groups_of_topic(self, topic: str) -> set[str]:
        """Return the online groups that subscribe to `topic`."""
        return {name for name, group in self._groups.items() if topic in group.subscriptions}

    def find_new(self, consumer: ConsumerData, new: NewExpressions) -> None:
        """Add the SQL92 expressions of a group in a heartbeat that `register` would compile."""
        if self._filters is not None:
            self._filters.find_new(consumer.group_name, consumer.subscription_data_set, new)

    def register(
        self,
        data: ConsumerData,
        client: ClientInfo,
        *,
        notify_enabled: bool,
        fingerprint: int = 0,
        with_subscriptions: bool = True,
        new: NewExpressions | None = None,
    ) -> bool:
        """Register a client in one group of its heartbeat.

        Return whether the client must send its subscriptions again (heartbeat v2): the fingerprint
        of the group has changed, or its subscriptions are unknown, as after a restart of the
        broker. A connection or user with too many groups is not registered, and the log tells that.
        `new`: what `find_new` found in the heartbeat; None if it has no SQL92.

        Raises RemotingError, before anything is changed, if the subscriptions are too large.
        """
        if with_subscriptions:
            self._check_weight(data)
        if not self._memberships.add(data.group_name, client.connection, client.caller):
            return False
        group = self._groups.get(data.group_name)
        if group is None:
            group = self._groups[data.group_name] = ConsumerGroup(data.group_name)
        other_fingerprint = group.fingerprint not in (None, fingerprint)
        group.fingerprint = fingerprint
        before = group.clients.get(client.connection)
        if before is not None and before.client_id != client.client_id:
            self._log.warning(
                "group %s: the client at %s was %s and is now %s",
                group.name,
                client.connection.peer,
                before.client_id,
                client.client_id,
            )
        changed = group.join(client, data)
        if changed:
            self._log.info("group %s: %s joined", group.name, client.client_id)
        if with_subscriptions:
            changed |= group.subscribe(data.subscription_data_set)
            self._weigh(group.name, sum(one.weight for one in group.subscriptions.values()))
            if self._filters is not None:
                self._filters.register(
                    group.name, data.subscription_data_set, new or NewExpressions()
                )
        if changed and notify_enabled and not group.broadcasting:
            self._notify(group)
        return other_fingerprint or not (with_subscriptions or group.subscriptions)

    def _check_weight(self, data: ConsumerData) -> None:
        weight = sum(map(weight_of, data.subscription_data_set))
        if weight <= SMALL_WEIGHT:
            return
        most = self._max_weight // _GROUP_SHARE
        left = self._max_weight - self._weight + self._weights.get(data.group_name, 0)
        if weight > min(most, left):
            raise RemotingError(
                ResponseCode.SYSTEM_BUSY,
                f"the subscriptions of group {data.group_name} would take {weight} bytes: a group "
                f"may have {most}, and {left} are left for all groups",
            )

    def _weigh(self, name: str, weight: int) -> None:
        self._weight -= self._weights.pop(name, 0)
        if weight > SMALL_WEIGHT:
            self._weights[name] = weight
            self._weight += weight

    def unregister(self, name: str, connection: Any, *, notify_enabled: bool = True) -> None:
        """Remove a member, and the group with its last member."""
        group = self._groups.get(name)
        if group is None:
            return
        client = group.clients.pop(connection, None)
        self._memberships.remove(name, connection)
        if client is None:
            return
        self._log.info("group %s: %s left", name, client.client_id)
        if not group.clients:
            del self._groups[name]
            self._weigh(name, 0)
            if self._filters is not None:
                self._filters.unregister(name)
        elif notify_enabled and not group.broadcasting:
            self._notify(group)

    def expire(self, silent_ms: int) -> Steps[list[ClientInfo]]:
        """Remove and return the clients that sent no heartbeat for `silent_ms`, in steps."""
        now = self._clock()
        expired, looked_at = [], 0
        for group in list(self._groups.values()):
            for connection in list(group.clients):
                looked_at += 1
                if not looked_at % REMOVED_AT_ONCE:
                    yield
                # It may have been heard, or have left, since the first step.
                client = group.clients.get(connection)
                if client is not None and now - client.seen > silent_ms:
                    self.unregister(group.name, connection)
                    expired.append(client)
        return expired
