"""The clients of a proxy: their settings, and how to reach them.

A client is known by its client id from its first permitted call on. It has settings from its first
Telemetry command on; some clients whose stream breaks while the proxy is down resend them only
after five minutes, and consume meanwhile. It is removed when it announces that it stops, or after
two minutes of silence without an open Telemetry stream.

Until then, the client id belongs to the user who signs the client's calls: calls of other users
with this id are refused.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable
from typing import Any, Final

from pocketmq.auth.errors import AuthError
from pocketmq.limited_log import LimitedLog, shown
from pocketmq.message.tags import TagExpression, TagExpressionError
from pocketmq.proxy.port.broker_port import BrokerPort, Registration
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.proxy.rpc import Call, Outgoing
from pocketmq.proxy.service.message_codec import now_ms
from pocketmq.proxy.service.status import ServiceError
from pocketmq.remoting.bodies.heartbeat import ConsumerData, SubscriptionData
from pocketmq.remoting.errors import RemotingTimeout
from pocketmq.remoting.serving.request import Request, Response, owner_of
from pocketmq.remoting.shares import Shares

log = logging.getLogger("pocketmq.auth")

CLIENT_ID: Final = b"x-mq-client-id"
LANGUAGE: Final = b"x-mq-language"
VERSION: Final = b"x-mq-client-version"

#: Seconds of silence after which a client is removed (`channelExpiredTimeout`).
EXPIRY: Final = 120.0
MAX_CLIENTS: Final = 100_000
#: The most clients of one user (without authentication: one address): they choose their ids.
MAX_CLIENTS_OF_USER: Final = 20_000
MAX_CLIENT_ID: Final = 512
#: Seconds within which a client has to answer a command.
COMMAND_TIMEOUT: Final = 5.0
#: The most topics in the settings of one client.
MAX_TOPICS: Final = 1_000
#: The most bytes, as counted by `_weight_of`, of the settings of all clients; half of it for each
#: user (without authentication: each address).
MAX_SETTINGS: Final = 64 << 20
#: Settings up to this size do not count: the number of clients has its own limit.
SMALL_SETTINGS: Final = 4 << 10
_OWNER_SHARE: Final = 2
_TOPIC_OVERHEAD: Final = 256  # of a topic, as objects
#: Fields of settings that nobody reads.
_UNREAD: Final = ("access_point", "backoff_policy", "metric", "user_agent")

_LANGUAGES: Final = {
    "JAVA": "JAVA",
    "GO": "GO",
    "GOLANG": "GO",
    "PYTHON": "PYTHON",
    "CPP": "CPP",
    "DOTNET": "DOTNET",
    "DOT_NET": "DOTNET",
    "RUST": "RUST",
    "PHP": "PHP",
}


#: Answers a broker's request to a client.
AskedOf = Callable[["Client", Request[Any]], Any]


class Client:
    """One client.

    Attributes:
        settings: the client's last settings, without unused fields; None before the first.
        weight: their counted size.
        owner: the name of the user who signs its calls; "" if they are not signed.
        counted_for: the user or address in whose number of clients it counts.
        link: its link to the brokers.
        gone: it was removed, and its link is closed.
    """

    def __init__(self, client_id: str, call: Call, port: BrokerPort, asked: AskedOf) -> None:
        self.client_id = client_id
        self.peer = call.peer
        self.version = call.text(VERSION)
        self.settings: pb.Settings | None = None
        self.weight = 0
        self.seen = call_time()
        self.gone = False
        self.streams: list[Outgoing] = []

        async def asked_of(request: Request[Any]) -> Response | None:
            response: Response | None = await asked(self, request)
            return response

        language = _LANGUAGES.get(call.text(LANGUAGE).upper(), "OTHER")
        self.link = port.open(client_id, language, call.peer, asked_of)
        self.owner = ""
        self.counted_for = ""
        self.signed_by(call)
        self._answers: dict[str, asyncio.Future[pb.TelemetryCommand]] = {}

    def signed_by(self, call: Call) -> bool:
        """Record the caller; return False if the client belongs to another user."""
        caller = call.caller
        if caller is None:
            return True
        if self.owner and caller.username != self.owner:
            return False
        self.owner = caller.username
        self.link.caller = caller
        return True

    @property
    def is_producer(self) -> bool:
        """Whether its settings are those of a producer."""
        return self.settings is not None and self.settings.HasField("publishing")

    @property
    def group(self) -> str:
        """Its consumer group, "" without one."""
        settings = self.settings
        return settings.subscription.group.name if settings is not None else ""

    @property
    def alive(self) -> bool:
        """Whether it was active within the last two minutes."""
        return bool(self.streams) or call_time() - self.seen < EXPIRY

    def registration(self) -> Registration:
        """Return its groups for the brokers, from its settings."""
        settings = self.settings
        if settings is None:
            return Registration()
        if settings.HasField("publishing"):
            # The official proxy uses each topic as a producer group too, so that each of the two
            # can recover the other's transactions.
            topics = dict.fromkeys(topic.name for topic in settings.publishing.topics)
            return Registration(producers=list(topics)[:MAX_TOPICS])
        subscription = settings.subscription
        if not subscription.group.name:
            return Registration()
        consumer = ConsumerData(
            group_name=subscription.group.name,
            consume_type="CONSUME_POP",
            message_model="CLUSTERING",
            consume_from_where="CONSUME_FROM_LAST_OFFSET",
            subscription_data_set=[
                subscription_data(entry.topic.name, entry.expression)
                for entry in subscription.subscriptions[:MAX_TOPICS]
            ],
        )
        return Registration(consumers=[consumer])

    def send(self, command: pb.TelemetryCommand) -> bool:
        """Send a command on the stream that sent settings last; return False without a stream."""
        if not self.streams:
            return False
        self.streams[-1].send(command)
        return True

    async def command(self, make: Callable[[str], pb.TelemetryCommand]) -> pb.TelemetryCommand:
        """Send the command that `make(nonce)` returns, and return the answer.

        Raises RemotingTimeout.
        """
        nonce = secrets.token_hex(16)
        future: asyncio.Future[pb.TelemetryCommand] = asyncio.get_running_loop().create_future()
        self._answers[nonce] = future
        try:
            if self.send(make(nonce)):
                async with asyncio.timeout(COMMAND_TIMEOUT):
                    return await future
        except TimeoutError:
            pass
        finally:
            del self._answers[nonce]
        raise RemotingTimeout(f"the client {self.client_id} did not answer a command")

    def answered(self, nonce: str, command: pb.TelemetryCommand) -> None:
        """Process the answer to a command."""
        future = self._answers.get(nonce)
        if future is not None and not future.done():
            future.set_result(command)


def client_id_of(call: Call) -> str:
    """Return the client id of a call. Raises ServiceError if it has none."""
    client_id = call.text(CLIENT_ID)
    if not client_id or client_id.isspace():
        raise ServiceError(pb.CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing")
    if len(client_id) > MAX_CLIENT_ID:
        raise ServiceError(
            pb.CLIENT_ID_REQUIRED,
            f"the client id has {len(client_id)} characters; at most {MAX_CLIENT_ID} are allowed",
        )
    return client_id


def _weight_of(settings: pb.Settings) -> int:
    topics = len(settings.publishing.topics) + len(settings.subscription.subscriptions)
    weight = settings.ByteSize() + _TOPIC_OVERHEAD * topics
    return weight if weight > SMALL_SETTINGS else 0


def call_time() -> float:
    """Return the time of the loop, seconds."""
    return asyncio.get_running_loop().time()


def subscription_data(topic: str, expression: pb.FilterExpression) -> SubscriptionData:
    """Return a subscription in the brokers' form. Raises ServiceError."""
    text = expression.expression or "*"
    version = now_ms()
    if expression.type == pb.SQL:
        return SubscriptionData(
            topic=topic, expression_type="SQL92", sub_string=text, sub_version=version
        )
    try:
        tags = TagExpression(text)
    except TagExpressionError as error:
        raise ServiceError(pb.ILLEGAL_FILTER_EXPRESSION, str(error)) from None
    return SubscriptionData(
        topic=topic,
        sub_string=tags.text,
        tags_set=sorted(tags.tags),
        code_set=sorted(tags.codes),
        sub_version=version,
    )


class Clients:
    """All clients of a proxy; `asked(client, request)` answers the brokers' requests to them."""

    def __init__(
        self, port: BrokerPort, asked: AskedOf, *, max_settings: int = MAX_SETTINGS
    ) -> None:
        self._max_settings = max_settings
        self._weights = Shares()  # of settings, by user or address
        self._port = port
        self._asked = asked
        self._by_id: dict[str, Client] = {}
        self._counts = Shares()  # by user or address
        self._log = LimitedLog(log)
        #: Called with each client that is removed.
        self.on_gone: list[Callable[[Client], None]] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def of(self, call: Call) -> Client:
        """Return the client of a call, and register it if it is new. Check the call's permission
        first.

        Raises ServiceError without a client id, AuthError for that of another user.
        """
        client = self.known(call)
        if client is None:
            client_id = client_id_of(call)
            owner = owner_of(call.caller, call.peer[0])
            count = self._counts.of(owner)
            if len(self._by_id) >= MAX_CLIENTS or count >= MAX_CLIENTS_OF_USER:
                raise ServiceError(
                    pb.TOO_MANY_REQUESTS,
                    f"{len(self._by_id)} clients are known already, {count} of them "
                    f"of {owner}: {MAX_CLIENTS} and {MAX_CLIENTS_OF_USER} are allowed",
                )
            client = self._by_id[client_id] = Client(client_id, call, self._port, self._asked)
            client.counted_for = owner
            self._counts.add(owner)
        return client

    def known(self, call: Call) -> Client | None:
        """Return the client of a call; None if this is its first call. Raises the same errors."""
        if not call.checked:
            raise RuntimeError(f"call {call.method} looks for its client before it is checked")
        client = self._by_id.get(client_id_of(call))
        if client is None:
            return None
        if not client.signed_by(call):
            self._log.warning(
                "call %s of %s is refused: client id %s belongs to another user",
                call.method,
                call.peer[0],
                shown(client.client_id),
                cause=("another user's", call.peer[0], call.method),
            )
            raise AuthError(f"the client id {shown(client.client_id)} belongs to another user")
        client.seen = call_time()
        return client

    def keep_settings(self, client: Client, settings: pb.Settings) -> None:
        """Replace a client's settings. Raises ServiceError if they are too large."""
        kept = pb.Settings()
        kept.CopyFrom(settings)
        kept.DiscardUnknownFields()
        for name in _UNREAD:
            kept.ClearField(name)
        weight = _weight_of(kept)
        owner = client.counted_for
        more, of_owner = weight - client.weight, self._weights.of(owner)
        if weight and (
            self._weights.total + more > self._max_settings
            or of_owner + more > self._max_settings // _OWNER_SHARE
        ):
            raise ServiceError(
                pb.TOO_MANY_REQUESTS,
                f"the settings of all clients have {self._weights.total} bytes, {of_owner} of them "
                f"of clients of {owner}, and these have {weight}: "
                f"{self._max_settings} and {self._max_settings // _OWNER_SHARE} are allowed",
            )
        self._weigh(client, weight)
        client.settings = kept

    def _weigh(self, client: Client, weight: int) -> None:
        self._weights.add(client.counted_for, weight - client.weight)
        client.weight = weight

    def forget(self, client: Client) -> None:
        """Remove a client that has stopped or is silent."""
        if self._by_id.get(client.client_id) is client:
            del self._by_id[client.client_id]
            self._weigh(client, 0)
            self._counts.remove(client.counted_for)
            client.gone = True
            for callback in self.on_gone:
                callback(client)
            client.link.close()

    def expire(self) -> None:
        """Remove silent clients."""
        for client in tuple(self._by_id.values()):
            if not client.alive:
                self.forget(client)

    def close(self) -> None:
        """Remove all clients."""
        for client in tuple(self._by_id.values()):
            self.forget(client)
