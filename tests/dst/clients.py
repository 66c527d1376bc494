"""Those who use the cluster, by the client's public names, and tell the history what they see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final

from pocketmq import (
    Admin,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
    SendResult,
    TransactionProducer,
    TransactionState,
)
from pocketmq.client.consumer.consumed_message import ConsumedMessage
from pocketmq.client.errors import (
    BatchSendError,
    NoRouteInfo,
    RemotingError,
    RequesterGone,
    TopicNotExist,
)
from pocketmq.client.producer.producer_options import ProducerOptions
from pocketmq.client.send_result import SendStatus
from pocketmq.message.identity import decode_offset_msg_id
from pocketmq.message.receipt_handle import decode_receipt_handle
from pocketmq.proxy.proto import service_pb2 as pb
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.connection import Connection
from pocketmq.remoting.frames.frame import Command
from pocketmq.remoting.headers import EndTransactionRequestHeader, Header
from tests.broker.pop.consuming import PopClient

from .cluster import BROKER_NAME, Cluster
from .engine.machine import Machine
from .engine.scheduler import MILLISECOND, SECOND
from .grpc import CallFailed, GrpcConsumer, GrpcProducer
from .history import (
    WRONG_QUEUE,
    Commit,
    Delivery,
    Health,
    History,
    Place,
    Send,
    Stored,
    reply_to,
)
from .operators import GUEST, SCRATCH, Operator
from .parents import Parents
from .plan import Client, Plan

TIMEOUT: Final = 6.0
LEVELS: Final = (0, 1, 5, 10)
"""Seconds of the delay levels that are used, by level."""
INVISIBLE: Final = 6.0
GRPC_INVISIBLE: Final = 10
"""The least that a proxy takes, seconds."""
SLOW: Final = 0.98
LONG_WORK: Final = 3.0
"""How long a message takes now and then: offsets are committed, and clients die, meanwhile."""
KEYS: Final = 5
SMALL_BATCH: Final = 4_000
"""Bytes of a batch where one list becomes many of them, which are sent together."""
LATE: Final = 0.03
"""How many requests are replied to when their producer may have given up, and how many twice."""
LARGEST: Final = 3_000
LOOK: Final = 2.0
"""How often an administrator looks at offsets, seconds."""
SETTLED: Final = 6.0
"""How long before everything is read: a member of a group shows the last messages only after its
master has told it that all have them, with the next heartbeat."""
ENDED: Final = (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
"""Answers to the end of a transaction: it has ended now, or before."""


class Failure(Exception):
    """What a handler raises now and then."""


class Clients:
    """Attributes:
    producing: whether producers go on.
    ready: the topics are there.
    settled: of `Auditor`: everything has come.
    """

    def __init__(self, plan: Plan, cluster: Cluster, history: History) -> None:
        self.plan = plan
        self.cluster = cluster
        self.history = history
        self.producing = True
        self.leaving: dict[str, asyncio.Event] = {}
        self.told_to_leave: set[str] = set()
        self.under_way: dict[str, int] = {}
        self.succeeded: dict[str, int] = {}
        for client in plan.clients:
            cluster.add(client.name, partial(self._run, client))

    @property
    def now(self) -> int:
        return self.cluster.scheduler.now

    def leave(self, name: str) -> None:
        """Have a client shut down in good order; it ends by itself."""
        machine = self.cluster.machines[name]
        process = machine.process
        if process is not None and name in self.leaving and machine.running:
            self.told_to_leave.add(name)
            process.loop.tell(self.leaving[name].set)

    async def _run(self, client: Client, machine: Machine) -> None:
        self.leaving[client.name] = asyncio.Event()
        self.told_to_leave.discard(client.name)
        match client.role:
            case "produce" | "guest":
                await self._produce(machine, client)
            case "push" | "orderly" | "broadcast":
                await self._push(machine, client)
            case "answer":
                await self._answer(machine, client)
            case "pull":
                await self._pull(machine, client)
            case "pop":
                await self._pop(machine, client)
            case "receive":
                await self._receive(machine, client)
            case _:
                await Operator(self.plan, self.cluster, self.history, client, machine).run()

    # Producers

    async def _produce(self, machine: Machine, client: Client) -> None:
        options: ProducerOptions = {
            "namesrv": self.cluster.namesrv,
            "timeout": TIMEOUT,
            "retries": client.retries,
            "credentials": GUEST if client.role == "guest" else self.cluster.credentials,
        }
        if client.flow == "parents":
            options["batch_bytes"] = SMALL_BATCH
        group = f"producers-{client.flow}"
        producer: Producer | GrpcProducer
        if client.flow == "grpc":
            producer = GrpcProducer(
                self.cluster, client_id(machine), client.flow, client.retries, TIMEOUT / 3
            )
        elif client.flow == "transacted":
            producer = TransactionProducer(group, check=self._check, **options)
        else:
            producer = Producer(group, **options)
        async with producer, Parents(self.cluster, TIMEOUT) as parents:
            await _Producing(self, machine, client, producer, parents).run()
            # It stays until it is told to leave: brokers ask it about transactions.
            await self.leaving[client.name].wait()

    def _check(self, message: MessageExt) -> TransactionState:
        """What became of a local transaction."""
        send = self.history.sends[name_of(message.body)]
        if send.fate:
            return TransactionState[send.fate.upper()]
        asker = self.cluster.machines[send.client].process
        if send.error or asker is None or asker.life != life_of(send.name):
            send.fate = "rollback"
            return TransactionState.ROLLBACK
        return TransactionState.UNKNOWN

    # Consumers

    def _delivered(
        self, machine: Machine, client: Client, message: MessageExt, broker: str
    ) -> Delivery:
        process = machine.process
        assert process is not None
        place = Place(message.topic, broker, message.queue_id, message.queue_offset)
        body = bytes(message.body)
        delivery = Delivery(
            self.now, name_of(body), client.reader, client.name, process.life, place, body,
            message.reconsume_times,
        )  # fmt: skip
        self.history.delivered(delivery)
        return delivery

    async def _push(self, machine: Machine, client: Client) -> None:
        failed: set[str] = set()

        async def handle(message: ConsumedMessage) -> None:
            delivery = self._delivered(machine, client, message, message.broker_name)
            if (work := machine_random(machine)) < 0.3:
                await asyncio.sleep(work)
            elif work > SLOW and client.role != "orderly":
                await asyncio.sleep(LONG_WORK)
            if machine_random(machine) < client.fails and delivery.name not in failed:
                failed.add(delivery.name)
                raise Failure
            self.history.done(delivery, self.now)

        async with self._pushed(machine, client, handle):
            await self.leaving[client.name].wait()

    def _pushed(
        self,
        machine: Machine,
        client: Client,
        handle: Callable[[ConsumedMessage], Awaitable[None]],
    ) -> PushConsumer:
        return PushConsumer(
            client.group,
            {client.flow: "*"},
            handler=handle,
            namesrv=self.cluster.namesrv,
            credentials=self.cluster.credentials,
            start="begin",
            orderly=client.role == "orderly",
            broadcast=client.role == "broadcast",
            offset_directory=machine.root / "offsets",
            start_timeout=3600,
        )

    async def _answer(self, machine: Machine, client: Client) -> None:
        """Reply to requests."""
        producer = Producer(
            "repliers",
            namesrv=self.cluster.namesrv,
            timeout=TIMEOUT,
            credentials=self.cluster.credentials,
        )

        async def handle(request: ConsumedMessage) -> None:
            delivery = self._delivered(machine, client, request, request.broker_name)
            drawn = machine_random(machine)
            await asyncio.sleep(2 * TIMEOUT * machine_random(machine) if drawn < LATE else drawn)
            replies = 2 if drawn > 1 - LATE else 1
            for _ in range(replies):
                with suppress(RequesterGone):
                    await producer.reply(request, reply_to(delivery.body))
            self.history.done(delivery, self.now)

        async with producer, self._pushed(machine, client, handle):
            await self.leaving[client.name].wait()

    async def _pull(self, machine: Machine, client: Client) -> None:
        consumer = PullConsumer(
            client.group,
            namesrv=self.cluster.namesrv,
            credentials=self.cluster.credentials,
            start="begin",
            start_timeout=3600,
        )
        leaving = self.leaving[client.name]
        async with consumer:
            await consumer.subscribe(client.flow)
            while not leaving.is_set():
                messages = await consumer.poll(timeout=1.0)
                found = [
                    self._delivered(machine, client, message, message.broker_name)
                    for message in messages
                ]
                if machine_random(machine) < 0.1:
                    await asyncio.sleep(0.2)
                for delivery in found:
                    self.history.done(delivery, self.now)

    async def _pop(self, machine: Machine, client: Client) -> None:
        leaving = self.leaving[client.name]
        async with self.cluster.admin() as admin:
            while not leaving.is_set():
                try:
                    route = await admin.topic_route(client.flow)
                    address = route.broker_datas[0].broker_addrs[0]
                    connection = await self.cluster.connect(address)
                    try:
                        asking: Any = _Asking(connection)
                        popping = PopClient(asking, client.flow, client.group, BROKER_NAME)
                        while not leaving.is_set():
                            await self._pop_once(machine, client, popping)
                    finally:
                        await connection.close()
                except (RemotingError, KeyError, IndexError, AssertionError, OSError):
                    await asyncio.sleep(0.5)

    async def _pop_once(self, machine: Machine, client: Client, popping: PopClient) -> None:
        messages = await popping.pop(
            invisible_time=int(INVISIBLE * 1000), poll_time=2_000, max_msg_nums=8
        )
        for message in messages:
            record, handle = message.record, message.handle
            process = machine.process
            assert process is not None
            place = Place(
                handle.stored_topic(client.flow, client.group),
                BROKER_NAME,
                handle.queue_id,
                handle.queue_offset or 0,
            )
            delivery = Delivery(
                self.now, name_of(message.body), client.group, client.name, process.life, place,
                message.body, record.reconsume_times,
                visible_again=(handle.pop_time + handle.invisible_time) * MILLISECOND,
            )  # fmt: skip
            self.history.delivered(delivery)
            if machine_random(machine) < 0.05:
                continue  # it comes again
            # From now on it may have arrived, also if this client is killed.
            self.history.done(delivery, self.now)
            await popping.ack(message)
            delivery.acknowledged = True
            self.history.done(delivery, self.now)

    async def _receive(self, machine: Machine, client: Client) -> None:
        leaving = self.leaving[client.name]
        consumer = GrpcConsumer(
            self.cluster, client_id(machine), client.flow, client.group, TIMEOUT
        )
        async with consumer:
            while not leaving.is_set():
                try:
                    for message in await consumer.receive(GRPC_INVISIBLE, 2):
                        await self._received(machine, client, consumer, message)
                except CallFailed:
                    await asyncio.sleep(0.5)

    async def _received(
        self, machine: Machine, client: Client, consumer: GrpcConsumer, message: pb.Message
    ) -> None:
        process = machine.process
        assert process is not None
        system = message.system_properties
        handle = decode_receipt_handle(system.receipt_handle)
        topic = handle.stored_topic(client.flow, client.group)
        place = Place(topic, BROKER_NAME, handle.queue_id, handle.queue_offset)
        delivery = Delivery(
            self.now, name_of(message.body), client.group, client.name, process.life, place,
            message.body, system.delivery_attempt - 1,
            visible_again=handle.next_visible_time * MILLISECOND,
        )  # fmt: skip
        self.history.delivered(delivery)
        if machine_random(machine) < 0.05:
            return  # it comes again
        # From now on it may have arrived, also if this client is killed.
        self.history.done(delivery, self.now)
        delivery.acknowledged = await consumer.acknowledge(message)
        self.history.done(delivery, self.now)


class _Asking:
    """A connection as PopClient wants it."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def request(self, code: int, header: Header) -> Command:
        return await self._connection.request(code, header, timeout=TIMEOUT)


class _Producing:
    """One life of a producer."""

    def __init__(
        self,
        clients: Clients,
        machine: Machine,
        client: Client,
        producer: Producer | GrpcProducer,
        parents: Parents,
    ) -> None:
        process = machine.process
        assert process is not None
        self._clients = clients
        self._machine = machine
        self._process = process
        self._client = client
        self._producer: Any = producer  # whoever sends by gRPC has `send` only
        self._parents = parents
        self._address = ""
        self._leaving = clients.leaving[client.name]
        self._numbers = 0
        self._tasks: dict[asyncio.Task[None], None] = {}

    @property
    def _going_on(self) -> bool:
        return self._clients.producing and not self._leaving.is_set()

    async def run(self) -> None:
        rate = self._client.rate
        if self._client.flow == "ordered":
            await asyncio.gather(*(self._one_key(f"key{n}", rate / KEYS) for n in range(KEYS)))
            return
        while self._going_on:
            task = asyncio.ensure_future(self._once())
            self._tasks[task] = None
            task.add_done_callback(lambda task: self._tasks.pop(task, None))
            pace = 1 / rate if machine_random(self._machine) < 0.9 else 0.001
            await asyncio.sleep(pace)
        await asyncio.gather(*self._tasks)

    async def _once(self) -> None:
        match self._client.flow:
            case "batch":
                size = 2 + int(8 * machine_random(self._machine))
                await self._batch([self._made() for _ in range(size)])
            case "delayed":
                await self._delayed()
            case "transacted":
                await self._transaction()
            case "asked":
                await self._ask()
            case "parents":
                await self._many()
            case "grpc":
                send = self._made()
                send.queue_known = False
                await self._send(send, self._message(send))
            case _ if (share := self._client.delayed) and machine_random(self._machine) < share:
                await self._delayed()
            case _:
                send = self._made()
                await self._send(send, self._message(send))

    async def _one_key(self, key: str, rate: float) -> None:
        await asyncio.sleep(machine_random(self._machine) / rate)
        while self._going_on:
            send = self._made()
            send.key = key
            await self._send(send, self._message(send), key=key)
            await asyncio.sleep(1 / rate)

    def _made(self) -> Send:
        self._numbers += 1
        name = f"{self._client.name}.{self._process.life}.{self._numbers}"
        size = int(LARGEST ** machine_random(self._machine))
        body = f"{name}|".encode() + self._process.random.randbytes(size)
        clients = self._clients
        send = clients.history.sends[name] = Send(
            name, self._client.flow, body, self._client.name, clients.now, self._client.retries
        )
        return send

    def _message(self, send: Send, **fields: Any) -> Message:
        return Message(
            send.topic, send.body, keys=[send.name], properties={"name": send.name}, **fields
        )

    async def _send(self, send: Send, message: Message, key: str | None = None) -> None:
        try:
            self._answered(send, await self._producer.send(message, key=key))
        except RemotingError as error:
            self._failed(send, error)

    async def _batch(self, sends: list[Send]) -> None:
        try:
            results: list[Any] = list(
                await self._producer.send_batch([self._message(send) for send in sends])
            )
        except BatchSendError as error:
            results = list(error.results)
        except RemotingError as error:
            results = [error] * len(sends)
        for send, result in zip(sends, results, strict=True):
            if isinstance(result, SendResult):
                self._answered(send, result)
            else:
                self._failed(send, result)

    async def _ask(self) -> None:
        send = self._made()
        send.queue_known = False
        send.patience = int(TIMEOUT * SECOND)
        try:
            reply = await self._producer.request(self._message(send))
        except RemotingError as error:
            self._failed(send, error)
            return
        send.reply = bytes(reply.body)
        send.ended = self._clients.now
        self._succeeded(send)

    async def _many(self) -> None:
        """Send a list that becomes many batches, or single messages to queues that are told, of
        which some do not exist."""
        sends = [self._made() for _ in range(2 + int(20 * machine_random(self._machine)))]
        if not self._address or machine_random(self._machine) < 0.5:
            await self._batch(sends)
            return
        queues = self._clients.plan.queues
        for send in sends:
            send.retries = 0
            wrong = machine_random(self._machine) < 0.1
            send.queue = WRONG_QUEUE if wrong else int(queues * machine_random(self._machine))
        await self._parents.send(self._address, sends)

    async def _delayed(self) -> None:
        send = self._made()
        send.queue_known = False
        if machine_random(self._machine) < 0.5:
            level = 1 + int(3 * machine_random(self._machine))
            seconds, fields = float(LEVELS[level]), {"delay_level": level}
        else:
            seconds = 0.5 + round(12 * machine_random(self._machine), 3)
            fields = {"delay": seconds}  # type: ignore[dict-item]
        send.due = send.began + int(seconds * SECOND)
        await self._send(send, self._message(send, **fields))
        if send.handle and machine_random(self._machine) < self._client.recalls:
            await self._recall(send)

    async def _recall(self, send: Send) -> None:
        """Cancel a timed message, mostly in time."""
        left = max(send.due - self._clients.now, 0) / SECOND
        await asyncio.sleep(left * machine_random(self._machine))
        send.recalling = True
        with suppress(RemotingError):
            await self._producer.recall(send.topic, send.handle)
            send.recalled = self._clients.now

    async def _transaction(self) -> None:
        send = self._made()
        send.queue_known, send.transactional = False, True
        drawn = machine_random(self._machine)
        fate = "commit" if drawn < 0.6 else "rollback"
        producer = self._producer
        assert isinstance(producer, TransactionProducer)
        try:
            async with producer.transaction(self._message(send)) as transaction:
                if machine_random(self._machine) < 0.2:
                    await asyncio.sleep(3 * machine_random(self._machine))
                send.fate = send.fate or fate  # the local transaction
                if machine_random(self._machine) < 0.2:
                    transaction.unknown()
                elif send.fate == "rollback":
                    transaction.rollback()
            self._answered(send, transaction.half)
            if send.fate == "rollback" and machine_random(self._machine) < self._client.fails:
                await self._commit_rolled_back(transaction.half)
        except RemotingError as error:
            self._failed(send, error)

    async def _commit_rolled_back(self, half: SendResult) -> None:
        """Roll a transaction back, and commit it after the broker has answered: only a client that
        is wrong does that."""
        place = decode_offset_msg_id(half.offset_msg_id)
        with suppress(RemotingError, OSError):
            connection = await self._clients.cluster.connect(f"{place.host}:{place.port}")
            try:
                for state in (TransactionState.ROLLBACK, TransactionState.COMMIT):
                    header = EndTransactionRequestHeader(
                        producer_group=f"producers-{self._client.flow}",
                        tran_state_table_offset=half.queue_offset,
                        commit_log_offset=place.physical_offset,
                        commit_or_rollback=state,
                        msg_id=half.msg_id,
                        transaction_id=half.transaction_id,
                    )
                    answer = await connection.request(
                        RequestCode.END_TRANSACTION, header, timeout=TIMEOUT
                    )
                    if answer.code not in ENDED:
                        return
            finally:
                await connection.close()

    def _answered(self, send: Send, result: SendResult) -> None:
        clients = self._clients
        send.ended = clients.now
        send.confirmed = result.status is SendStatus.SEND_OK
        send.handle = result.recall_handle or ""
        queue = result.queue
        send.place = Place(send.topic, queue.broker_name, queue.queue_id, result.queue_offset)
        if self._client.flow == "parents":
            stored = decode_offset_msg_id(result.offset_msg_id.partition(",")[0])
            self._address = f"{stored.host}:{stored.port}"
        self._succeeded(send)

    def _succeeded(self, send: Send) -> None:
        clients = self._clients
        if send.began >= clients.history.calm > 0:
            clients.succeeded.setdefault(send.client, clients.now)

    def _failed(self, send: Send, error: object) -> None:
        send.ended = self._clients.now
        send.error = repr(error)


class Auditor:
    """An administrator that nothing happens to: makes the topics, looks at offsets meanwhile, and
    reads everything in the end.

    Attributes:
        ready: the topics exist.
        finishing: it is to read everything, once no group lags; `hurried`: even if one does.
    done: it has read everything.
    unready: why not all members are ready, by their own words at the last look; empty if they are.
    """

    def __init__(self, plan: Plan, cluster: Cluster, history: History) -> None:
        self.ready = False
        self.finishing = False
        self.hurried = False
        self.done = False
        self.error: RemotingError | None = None
        self.lags: dict[str, int] = {}
        self.unready = "nothing is known of the members yet"
        self._plan = plan
        self._cluster = cluster
        self._history = history
        cluster.add("auditor", self._run)

    async def _run(self, machine: Machine) -> None:
        async with self._cluster.admin() as admin:
            for topic in self._plan.flows:
                while True:
                    try:
                        await admin.create_topic(topic, queues=self._plan.queues)
                        await admin.queues(topic)
                        break
                    except RemotingError:
                        await asyncio.sleep(0.2)
            self.ready = True
            while not self.finishing:
                await asyncio.sleep(LOOK)
                try:
                    await self._look(admin)
                except (NoRouteInfo, TopicNotExist) as error:
                    self._history.unknown.append((self._cluster.scheduler.now, repr(error)))
                except RemotingError:
                    pass
                with suppress(RemotingError):
                    await self._ask_health(admin)
            await asyncio.sleep(SETTLED)
            while not self.done:
                try:
                    await self._look(admin)
                    self.lags = await self._lag(admin)
                    if self.hurried or not any(self.lags.values()):
                        await self._read(admin)
                        self.done = True
                        return
                except RemotingError as error:
                    self.error = error
                await asyncio.sleep(1.0)

    def _groups(self) -> dict[str, str]:
        return {
            client.group: client.flow
            for client in self._plan.clients
            if client.role in ("push", "orderly", "pull", "answer") and client.flow != SCRATCH
        }

    async def _look(self, admin: Admin) -> None:
        for topic in self._plan.flows:
            if topic != SCRATCH:
                await admin.topic_route(topic)
        for group, topic in self._groups().items():
            for queue in await admin.queues(topic):
                offset = await admin.group_offset(group, queue)
                place = (topic, queue.broker_name, queue.queue_id)
                reached = -1 if offset is None else offset
                commit = Commit(self._cluster.scheduler.now, group, *place, reached)
                self._history.commits.append(commit)

    async def _ask_health(self, admin: Admin) -> None:
        """Ask each member about itself."""
        cluster, history = self._cluster, self._history
        self.unready = "not all members could be asked"
        info = await admin.cluster_info()
        group = info.broker_addr_table.get(BROKER_NAME)
        members = {} if group is None else group.broker_addrs
        problems = []
        for number, address in sorted(members.items()):
            figures = await admin.broker_runtime(BROKER_NAME, member=number)
            machine = cluster.machine_at(address)
            ready = figures["memberReady"] == "true"
            told = Health(cluster.scheduler.now, machine, ready, figures["memberProblems"])
            history.health.append(told)
            if not ready:
                problems.append(f"{machine}: {told.problems}")
        if len(members) >= cluster.living:
            self.unready = "; ".join(problems)

    async def _lag(self, admin: Admin) -> dict[str, int]:
        return {group: await admin.lag(group, topic) for group, topic in self._groups().items()}

    async def _read(self, admin: Admin) -> None:
        stored = []
        existing = set(await admin.topics())
        for topic in self._plan.flows:
            if topic == SCRATCH and topic not in existing:
                continue
            queues = await admin.queues(topic)
            self._history.queues[topic] = len(queues)
            for queue in queues:
                begin = await admin.min_offset(queue)
                self._history.begins[topic, queue.queue_id] = begin
                async for message in admin.messages(queue, begin):
                    place = Place(topic, queue.broker_name, queue.queue_id, message.queue_offset)
                    body = bytes(message.body)
                    number = message.properties.get("name", "")
                    stored.append(Stored(place, name_of(body), body, number))
        self._history.stored = stored


def name_of(body: bytes) -> str:
    return body.partition(b"|")[0].decode("ascii", "replace")


def life_of(name: str) -> int:
    return int(name.split(".")[1])


def client_id(machine: Machine) -> str:
    """Of this life of a client that speaks gRPC."""
    process = machine.process
    assert process is not None
    return f"{machine.name}@{process.life}"


def machine_random(machine: Machine) -> float:
    """Drawn by the process that runs on it."""
    process = machine.process
    assert process is not None
    return process.random.random()
