"""A member of a controller group: it gets its id and its role, and keeps both.

First it gets an id (`identity_file`); then it registers and takes the role that the controller
assigns. If the group has no master, it asks for an election. From then on it sends heartbeats,
queries its role every few seconds in case a notification was lost, and maintains the SyncStateSet.
Without a controller it continues in its role. Reference: ReplicasManager.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

from pocketmq.broker.controller.controller_client import ControllerClient, Standing
from pocketmq.broker.controller.identity_file import (
    Application,
    GroupIdentity,
    IdentityFile,
    IdentityUnusable,
    explain_copy,
)
from pocketmq.broker.controller.replica import AskForSet, RoleRefused, RoleTold
from pocketmq.kept_task import KeptTask
from pocketmq.limited_log import LimitedLog
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RemotingError, error_for

log = logging.getLogger(__name__)


class MemberPeriods(NamedTuple):
    """The periods of a member's requests, in seconds.

    Attributes:
        heartbeat: brokerHeartbeatInterval.
        role: syncBrokerMetadataPeriod: between two queries of the role.
        first_role: until the first query of the role.
        leader: syncControllerMetadataPeriod: between two queries of the controllers' leader.
        retry: the longest pause between two attempts to register.
    """

    heartbeat: float = 1.0
    role: float = 5.0
    first_role: float = 3.0
    leader: float = 10.0
    retry: float = 5.0


#: Codes with which a controller refuses a request for another SyncStateSet. After other errors,
#: such as those of a leader that has lost its place, the request may have been executed.
REFUSALS: Final = frozenset(
    {
        ResponseCode.CONTROLLER_FENCED_MASTER_EPOCH,
        ResponseCode.CONTROLLER_FENCED_SYNC_STATE_SET_EPOCH,
        ResponseCode.CONTROLLER_INVALID_MASTER,
        ResponseCode.CONTROLLER_INVALID_REPLICAS,
        ResponseCode.CONTROLLER_BROKER_NOT_ALIVE,
        ResponseCode.CONTROLLER_ALTER_SYNC_STATE_SET_FAILED,
    }
)


class RoleTaker(Protocol):
    """Changes the role of a broker; see `Replica` for the rules."""

    @property
    def standing(self) -> Standing | None:
        """The values for elections; None while another member should be elected."""

    @property
    def master_epoch(self) -> int:
        """The master epoch of this broker's role; 0 before the first role."""

    def begin(self, identity: GroupIdentity) -> None:
        """Set the id. Raises OSError, StoreError."""

    async def take_role(self, told: RoleTold) -> None:
        """Take the role, unless it is outdated: then finish the change to the current one. Raises
        RoleRefused, OSError."""

    def set_answered(self, told: tuple[frozenset[int], int] | None) -> None:
        """Process the answer to `GroupMember.ask_for_set`; None if there was none."""

    def set_refused(self) -> None:
        """Process a refusal of the request by the controller."""


class GroupMember:
    """One broker as a member of its group.

    `check_code` returns the check code for an application.

    Attributes:
        identity: None before the controller has assigned an id.
        trouble: why this broker is not a member yet; empty after it has become one.
    """

    def __init__(
        self,
        controllers: ControllerClient,
        files: IdentityFile,
        taker: RoleTaker,
        check_code: Callable[[], str],
        *,
        periods: Callable[[], MemberPeriods] = MemberPeriods,
    ) -> None:
        self.identity: GroupIdentity | None = None
        self.trouble = ""
        self._controllers = controllers
        self._files = files
        self._taker = taker
        self._check_code = check_code
        self._periods = periods  # called each time: the settings may change
        self._lines = LimitedLog(log)
        self._kept: list[KeptTask] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._roles = asyncio.Lock()  # one change after another
        self._silent = False  # no heartbeats, so that another broker is elected

    def start(self) -> None:
        """Start; call this on the event loop."""
        self._kept.append(KeptTask(self._become_member, "becoming a member", ends=True))

    async def stop(self) -> None:
        """Cancel all tasks."""
        tasks = [kept.cancel() for kept in self._kept] + list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def told(self, told: RoleTold) -> None:
        """Process a notification of a controller (NOTIFY_BROKER_ROLE_CHANGED)."""
        if self.identity is not None:
            self._spawn(self._take(told))

    def ask_for_set(self, role: RoleTold, order: AskForSet) -> None:
        """Ask the controller for another SyncStateSet; pass the answer to the role taker."""
        self._spawn(self._ask_for_set(role, order))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _become_member(self) -> None:
        if self.identity is None:
            identity = await self._until_done(self._identify)
            self._taker.begin(identity)
            self.identity = identity
        await self._until_done(self._join)
        self.trouble = ""
        # A warning, because earlier warnings may say that the controllers refused this broker.
        log.warning("broker is member %d of group %s", self.identity.broker_id, self.identity.group)
        periods = self._periods
        leader, first_role = periods().leader, periods().first_role
        self._keep("heartbeats", lambda: periods().heartbeat, 0.0, self._heartbeat)
        self._keep("leader", lambda: periods().leader, leader, self._find_leader)
        self._keep("role", lambda: periods().role, first_role, self._review)

    def _keep(
        self,
        name: str,
        seconds: Callable[[], float],
        first: float,
        action: Callable[[], Awaitable[None]],
    ) -> None:
        work = partial(self._every, seconds, first, action)
        self._kept.append(KeptTask(work, f"{name} of the group"))

    async def _until_done(self, attempt: Callable[[], Awaitable[Any]]) -> Any:
        """Repeat `attempt` until it succeeds."""
        pause = 0.2
        while True:
            try:
                return await attempt()
            except RemotingError as error:
                self.trouble = str(error)
                self._lines.warning("controllers do not accept this broker: %s", error)
            except (IdentityUnusable, OSError) as error:
                self.trouble = str(error)
                self._lines.error("broker cannot become a member of its group: %s", error)
                pause = self._periods().retry
            # A random pause, since members that start together apply for the same id.
            await asyncio.sleep(pause * (0.5 + random.random() / 2))
            pause = min(pause * 2, self._periods().retry)

    async def _identify(self) -> GroupIdentity:
        """Return this broker's identity; get it from the controller the first time.

        Raises RemotingError, also if another broker has the id: then the next attempt asks for
        another one.
        """
        found = self._files.load()
        if found is not None:
            return found
        application = self._files.applied()
        if application is None:
            application = Application(await self._controllers.next_id(), self._check_code())
            self._files.apply(application)
        if await self._controllers.apply(application):
            return self._files.confirm(application.broker_id)
        self._files.give_up()
        # Not at once: a controller that refuses every id must not keep the broker busy.
        raise error_for(
            ResponseCode.CONTROLLER_BROKER_ID_INVALID,
            f"broker id {application.broker_id} is another broker's; asking for the next one",
            self._controllers.leader,
        )

    async def _join(self) -> None:
        """Register, and take a role.

        Raises:
            RemotingError: there is no role yet.
            IdentityUnusable: another live broker has the same identity.
        """
        assert self.identity is not None
        other = await self._controllers.other_address(self.identity)
        if other is not None:
            raise IdentityUnusable(explain_copy(self.identity, other))
        told = await self._controllers.register(self.identity)
        if told is not None:
            await self._take(told)
        await self._heartbeat()
        if told is None:
            told = await self._controllers.elect(self.identity)
            if told is not None:
                await self._take(told)
        if told is None:
            raise RemotingError(
                ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE,
                f"the group {self.identity.group} has no master, and no member that may become one "
                "is online",
                self._controllers.leader,
            )

    async def _take(self, told: RoleTold) -> None:
        async with self._roles:
            try:
                await self._taker.take_role(told)
            except RoleRefused as error:
                self._silent = True
                self._lines.error("role from the controller is not accepted: %s", error)
            except OSError as error:
                self._lines.error("role from the controller cannot be taken: %s", error)
            else:
                self._silent = False

    async def _heartbeat(self) -> None:
        assert self.identity is not None
        standing = self._taker.standing
        if standing is None:
            self._lines.error(
                "broker cannot store messages until it is restarted; it sends no heartbeats, so "
                "that another member is elected"
            )
        elif not self._silent:
            await self._controllers.heartbeat(self.identity, standing)

    async def _find_leader(self) -> None:
        await self._controllers.find_leader()

    async def _review(self) -> None:
        """Query the role, in case a notification of the controller was lost, or it could not be
        taken."""
        assert self.identity is not None
        try:
            epoch, told = await self._controllers.replica_info()
        except RemotingError as error:
            if error.code != ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                raise
            await self._controllers.register(self.identity)
            return
        if told is None and epoch > self._taker.master_epoch:
            # Nobody else was elected, and only a member that sends heartbeats is.
            self._silent = False
            await self._heartbeat()
            told = await self._controllers.elect(self.identity)
        if told is not None:
            await self._take(told)

    async def _ask_for_set(self, role: RoleTold, order: AskForSet) -> None:
        told, refused = None, False
        try:
            # The controller refuses a master without a current heartbeat.
            await self._heartbeat()
            told = await self._controllers.alter_set(role, order.members, order.set_epoch)
        except RemotingError as error:
            refused = error.code in REFUSALS
            self._lines.warning(
                "SyncStateSet is not changed to %s: %s", sorted(order.members), error
            )
        finally:
            if refused:
                self._taker.set_refused()
            else:
                self._taker.set_answered(told)

    async def _every(
        self,
        seconds: Callable[[], float],
        first: float,
        action: Callable[[], Awaitable[None]],
    ) -> None:
        await asyncio.sleep(first)
        answers = True
        while True:
            began = time.monotonic()
            try:
                await action()
                if not answers:
                    log.warning("controllers answer again")
                answers = True
            except RemotingError as error:
                answers = False
                self._lines.warning("controllers do not answer: %s", error)
            except Exception:
                # A bug here must not end the task that keeps the broker in its group.
                log.exception("%s failed", action)
            await asyncio.sleep(max(seconds() - (time.monotonic() - began), 0.0))
