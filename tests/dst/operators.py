"""Administrators who work on the cluster while it is used, and tell the history what they did."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final

from pocketmq import Admin
from pocketmq.client.credentials import Credentials
from pocketmq.client.errors import RemotingError
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import RequestCode

from .cluster import BROKER_NAME, Cluster
from .engine.machine import Machine
from .history import Commit, History, Operation
from .plan import Client, Plan

Change = tuple[RequestCode, dict[str, str], Mapping[str, object]]
"""A request about users: its code, its fields and its body."""

SCRATCH: Final = "scratch"
RECREATE: Final = "recreate"
PAUSE: Final = (1.0, 5.0)
"""Between two operations, at least, and how much more, seconds."""
DRAINED: Final = (6.0, 40.0)
"""For how long a broker is drained at most, seconds; only then has every producer noticed."""
MOST_ADDED: Final = 2
"""How many queues a topic gets in addition."""
AGAIN: Final = 0.5
TIMEOUT: Final = 6.0
GUEST: Final = Credentials("guest", "guest-password-1")
"""The producer who may send now and then."""
SETTINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "checkCRCOnRead": ("true", "false"),
    "enableRetryTopicV2": ("true", "false"),
    "fileReservedTime": ("72", "48"),
    "maxTransferCountOnMessageInMemory": ("2", "32"),
    "notifyConsumerIdsChangedEnable": ("true", "false"),
    "popCkStayBufferTime": ("10000", "1000"),
    "enablePopBufferMerge": ("true", "false"),
    "transactionTimeOut": ("2000", "4000"),
}
"""What an administrator changes, and to what."""


class Operator:
    """One life of an administrator."""

    def __init__(
        self, plan: Plan, cluster: Cluster, history: History, client: Client, machine: Machine
    ) -> None:
        process = machine.process
        assert process is not None
        self._plan = plan
        self._cluster = cluster
        self._history = history
        self._client = client
        self._random = process.random
        self._admin: Admin
        self._does = {
            RECREATE: self._recreate,
            "reset": self._reset,
            "skip": self._skip,
            "clone": self._clone,
            "queues": self._change_queues,
            "drain": self._drain,
            "set": self._set,
            "forget": self._forget,
            "grant": self._grant,
        }

    @property
    def _now(self) -> int:
        return self._cluster.scheduler.now

    async def run(self) -> None:
        """Work until nothing goes wrong any more, and leave the cluster as it is to be."""
        operations = self._client.operations or [RECREATE]
        async with self._cluster.admin() as self._admin:
            # A former life may have died in between.
            if "drain" in operations:
                await self._undrain()
            if RECREATE in operations and self._is_deleted:
                await self._create()
            while not self._history.calm:
                least, more = PAUSE
                await asyncio.sleep(least + more * self._random.random())
                if not self._history.calm:
                    await self._does[self._random.choice(operations)]()
            if "set" in operations:
                await self._look_at_settings()

    async def _operate(
        self, what: str, subject: str, call: Coroutine[Any, Any, object], value: str = ""
    ) -> Operation:
        operation = Operation(self._now, what, subject, value=value)
        self._history.operations.append(operation)
        try:
            operation.answer = await call
            operation.ok = True
        except RemotingError as error:
            operation.ok = False
            operation.error = str(error)
        operation.ended = self._now
        return operation

    def _seen(self, what: str, value: str, subject: str = BROKER_NAME) -> None:
        """Note what an administrator read, and when."""
        seen = Operation(self._now, what, subject, ended=self._now, ok=True, value=value)
        self._history.operations.append(seen)

    # The topic that is deleted

    async def _recreate(self) -> None:
        """Delete a topic and create it anew."""
        await self._operate("delete", SCRATCH, self._admin.delete_topic(SCRATCH))
        await asyncio.sleep(2 * self._random.random())
        await self._create()

    @property
    def _is_deleted(self) -> bool:
        """Whether it is not known that the topic was created since."""
        changes = [o for o in self._history.operations if o.subject == SCRATCH]
        return bool(changes) and not (changes[-1].what == "create" and changes[-1].ok)

    async def _create(self) -> None:
        queues = 1 + int(3 * self._random.random())
        while True:
            create = self._admin.create_topic(SCRATCH, queues=queues, allow_shrink=True)
            if (await self._operate("create", SCRATCH, create)).ok:
                return
            await asyncio.sleep(AGAIN)

    # Offsets

    def _groups(self) -> dict[str, str]:
        """The groups that keep offsets, and their topics."""
        return {
            client.group: client.flow
            for client in self._plan.clients
            if client.role in ("push", "pull") and client.flow != SCRATCH
        }

    async def _reset(self) -> None:
        """Send a group back."""
        groups = self._groups()
        if groups:
            group = self._random.choice(list(groups))
            call = self._admin.reset_offsets(group, groups[group], "begin")
            await self._operate("reset", group, call)

    async def _skip(self) -> None:
        """Send a group to the end."""
        groups = {group: topic for group, topic in self._groups().items() if skips(group)}
        if groups:
            group = self._random.choice(list(groups))
            call = self._admin.reset_offsets(group, groups[group], "end")
            await self._operate("skip", group, call)

    async def _clone(self) -> None:
        """Give a group, which nobody uses, the offsets of another one."""
        groups = self._groups()
        if not groups:
            return
        group = self._random.choice(list(groups))
        topic, clone = groups[group], f"clone-{group}"
        try:
            await self._admin.create_group(clone)
            queues = await self._admin.queues(topic)
            before = await self._offsets(group, queues)
            done = await self._operate(
                "clone", group, self._admin.clone_offsets(group, clone, topic)
            )
            found = await self._offsets(clone, queues)
            after = await self._offsets(group, queues)
        except RemotingError:
            return
        if done.ok:
            done.ended = self._now
            done.answer = (before, found, after)

    async def _offsets(self, group: str, queues: tuple[MessageQueue, ...]) -> list[Commit]:
        found = []
        for queue in queues:
            offset = await self._admin.group_offset(group, queue)
            place = (queue.topic, queue.broker_name, queue.queue_id)
            found.append(Commit(self._now, group, *place, -1 if offset is None else offset))
        return found

    # Groups and topics

    async def _forget(self) -> None:
        """Delete a group that is used, with its offsets or not."""
        groups = [group for group in self._groups() if group.startswith("fleeting-")]
        if groups:
            clean = self._random.random() < 0.5
            call = self._admin.delete_group(groups[0], clean_offsets=clean)
            await self._operate("forget", groups[0], call)

    async def _change_queues(self) -> None:
        """Add queues, or write to fewer of them: all that were there can still be read."""
        topics = [flow for flow in self._plan.flows if flow != SCRATCH]
        if not topics:
            return
        topic = self._random.choice(topics)
        try:
            readable = len(await self._admin.queues(topic))
        except RemotingError:
            return
        if readable < self._plan.queues:
            return  # a member that was just elected does not know all of them yet
        most = self._plan.queues + MOST_ADDED
        wanted = min(readable + (self._random.random() < 0.5), most)
        create = self._admin.create_topic(
            topic, queues=self._random.randint(1, wanted), read_queues=wanted
        )
        await self._operate("queues", topic, create, str(wanted))

    # The broker

    async def _drain(self) -> None:
        """Have producers go away for a while; there is nowhere to go."""
        drain = self._admin.drain_broker(BROKER_NAME)
        done = await self._operate("drain", BROKER_NAME, drain)
        seconds = self._random.choice(DRAINED) * self._random.random()
        for _ in range(int(seconds / AGAIN)):
            if self._history.calm:
                break
            await asyncio.sleep(AGAIN)
        if done.ok:
            await self._look_at_drained()
        await self._undrain()

    async def _look_at_drained(self) -> None:
        """Note what the broker says of itself, and what producers are told."""
        with suppress(RemotingError):
            settings = await self._admin.broker_config(BROKER_NAME)
            self._seen("drained", settings["brokerPermission"])
            for topic in self._plan.flows:
                if topic != SCRATCH:
                    route = await self._admin.topic_route(topic)
                    self._seen("route", str(route.queue_datas[0].perm))

    async def _undrain(self) -> None:
        while True:
            call = self._admin.undrain_broker(BROKER_NAME)
            done = await self._operate("undrain", BROKER_NAME, call)
            # A name server that has just started does not know all of them yet.
            machines = [self._cluster.machines[name] for name in self._plan.brokers]
            running = sum(machine.process is not None for machine in machines)
            if done.ok and isinstance(done.answer, list) and len(done.answer) >= running:
                return
            await asyncio.sleep(AGAIN)

    async def _set(self) -> None:
        """Change a setting."""
        await self._look_at_settings()
        key = self._random.choice(list(SETTINGS))
        value = self._random.choice(SETTINGS[key])
        call = self._admin.update_broker_config({key: value}, broker=BROKER_NAME)
        await self._operate("set", key, call, value)

    async def _look_at_settings(self) -> None:
        with suppress(RemotingError):
            settings = await self._admin.broker_config(BROKER_NAME)
            for key in SETTINGS:
                self._seen("look", settings[key], key)

    # Rights

    async def _grant(self) -> None:
        """Give the guest the right to send, or take it away."""
        topic = self._client.flow
        subject = f"User:{GUEST.access_key}"
        if self._random.random() < 0.5:
            code, fields = RequestCode.AUTH_DELETE_ACL, {"subject": subject}
            await self._operate("revoke", topic, self._change_rights((code, fields, {})))
            return
        entry = {"resource": f"Topic:{topic}", "actions": ["Pub"], "decision": "Allow"}
        access = {"policies": [{"policyType": "Custom", "entries": [entry]}]}
        account = {"username": GUEST.access_key, "password": GUEST.secret_key}
        name = {"username": GUEST.access_key}
        made: Change = (RequestCode.AUTH_CREATE_USER, name, account)
        given: Change = (RequestCode.AUTH_CREATE_ACL, {"subject": subject}, access)
        await self._operate("grant", topic, self._change_rights(made, given))

    async def _change_rights(self, *changes: Change) -> None:
        """Ask the broker for these changes. Raises RemotingError."""
        route = await self._admin.topic_route(self._client.flow)
        try:
            connection = await self._cluster.connect(route.broker_datas[0].broker_addrs[0])
        except (KeyError, IndexError, OSError) as error:
            raise RemotingError(-1, f"no master: {error!r}") from error
        try:
            for code, fields, body in changes:
                content = json.dumps(body).encode()
                answer = await connection.request(
                    code, None, content, ext_fields=fields, timeout=TIMEOUT
                )
                if answer.code and "exist" not in (answer.remark or ""):
                    raise RemotingError(answer.code, answer.remark or "")
        finally:
            await connection.close()


def skips(group: str) -> bool:
    """Whether administrators may have a group leave messages out."""
    return group.startswith("skip-")
