"""Checks each request before a dispatcher executes it: who sent it, and whether they may.

Both servers, each of their ports, and the children of Batch-Protocol parents use the same object. A
child without an AccessKey of its own belongs to its parent's user: the parent's signature covers
its body, which holds the children.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from typing import Any, Final

from pocketmq.auth.errors import AuthError
from pocketmq.auth.permissions import Need, needs_of, on_group, on_topic
from pocketmq.auth.policies import Acl, Action, Decision, Decisions, Kind
from pocketmq.auth.signature import ACCESS_KEY, is_signature, key_of, signed_by
from pocketmq.auth.store import AuthTables
from pocketmq.auth.users import User, UserStatus
from pocketmq.limited_log import LimitedLog, shown
from pocketmq.message.limits import MAX_STORED_TOPIC
from pocketmq.remoting.answers.batch_answers import BatchAnswers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.serving.request import Request, Response

log = logging.getLogger("pocketmq.auth")

MAX_DECISIONS: Final = 10_000
"""Remembered decisions; each change of a user or access list drops them."""
MAX_REMEMBERED: Final = 1 << 20
"""Characters of their names."""
_FEW: Final = 64
"""Needs of one request. Decisions on those of a request with more are not remembered: they would
drop all the others."""
MAX_SIGNERS: Final = 1_000
"""Users whose keys are remembered, of 1 KB each; likewise."""
MAX_RESOURCE_NAME: Final = MAX_STORED_TOPIC
"""Characters: no topic, group or cluster has a longer name."""

_NO_ACL: Final = Acl()
_CODES: Final = {code.value: code.name for code in RequestCode}


class SignedCaller:
    """A user whose signature was checked, at an address; None if nobody had to sign.

    `checked`: the request needs permission.
    """

    __slots__ = ("_checked", "_guard", "source_ip", "user")

    def __init__(
        self, user: User | None, source_ip: str, guard: Guard, *, checked: bool = True
    ) -> None:
        self._guard = guard
        self._checked = checked
        self.user = user
        self.source_ip = source_ip

    @property
    def username(self) -> str:
        """The user's name; empty if nobody had to sign."""
        return self.user.username if self.user is not None else ""

    @property
    def is_super(self) -> bool:
        """Whether every request is allowed."""
        return self.user is not None and self.user.is_super

    def require_topic(self, topic: str, *actions: str) -> None:
        """Raise AuthError unless one of these actions on the topic of a stored message is allowed.

        The error does not name the topic: the request named an offset in the log, and offsets can
        be guessed."""
        if not self._checked:
            return
        try:
            self._guard.require(self, on_topic(topic, *map(Action, actions)))
        except AuthError as error:
            self._guard.log.warning("%s", error.remark, cause=("stored", self.source_ip))
            text = f"User:{self.username} has no permission to access the topic of this message."
            raise AuthError(text, "permission") from None

    def require_topics(self, topics: Iterable[str], *actions: str) -> None:
        """Do so for topics that the error may name, one after another."""
        if self._checked:
            for topic in topics:
                self._guard.require(self, on_topic(topic, *map(Action, actions)))

    def require_cluster(self, cluster: str, *actions: str) -> None:
        """Do the same for a cluster."""
        if self._checked:
            self._guard.require(self, Need(Kind.CLUSTER, cluster, tuple(map(Action, actions))))

    def may_publish(self, topic: str) -> bool:
        """Tell whether the user may send to this topic now."""
        return self._guard.allows(self, on_topic(topic, Action.PUB))

    def may_consume(self, group: str, *topics: str) -> bool:
        """Tell whether the user may receive in this group, and from these topics, now."""
        needs = (on_topic(topic, Action.SUB) for topic in topics)
        return self._guard.allows(self, on_group(group, Action.SUB), *needs)


class Signer:
    """A user who may sign requests: a `ReadSigner`."""

    __slots__ = ("_guard", "key", "user")

    def __init__(self, user: User, guard: Guard) -> None:
        self._guard = guard
        self.user = user
        self.key = key_of(user.password)

    @property
    def name(self) -> str:
        """The name that the user signs with."""
        return self.user.username

    def has_signed(self, given: bytes, values: memoryview, body: memoryview) -> bool:
        """Tell whether `given` is this user's signature; see `is_signature`."""
        return is_signature(given, self.key, values, body)

    def may_send(self, topic: str, source_ip: str) -> bool:
        """Tell whether a request of this user may send to the topic."""
        return self._guard.may_send(self.user, topic, source_ip)


class Guard:
    """Checks requests by the users and access lists of `tables`.

    - `cluster`: the cluster of the broker; empty at a name server, which serves several;
    - `authorize`: whether access lists are checked, or a valid signature is enough;
    - `unsigned`, `unchecked`: request codes that need no signature, and no permission.

    Attributes:
        log: for refusals.
    """

    def __init__(
        self,
        tables: AuthTables,
        *,
        cluster: str = "",
        authorize: bool = True,
        unsigned: Collection[int] = (),
        unchecked: Collection[int] = (),
    ) -> None:
        self._find = tables.find
        self._acls = tables.acls
        self._cluster = cluster
        self._authorize = authorize
        self._unsigned = frozenset(unsigned)
        self._unchecked = frozenset(unchecked)
        self._decisions: dict[tuple[str, str, Need], Decision | None] = {}
        self._remembered = 0  # characters
        self._signers: dict[str, Signer] = {}
        self.log = LimitedLog(log)
        tables.on_change.append(self._forget)

    def check(self, request: Request[Any]) -> Response | None:
        """Return the refusal of a request, or None; sets `request.caller`.

        Raises RemotingError for a body that cannot be read.
        """
        try:
            checked = self._authorize and request.code not in self._unchecked
            user = self._user_of(request, needed=checked)
            if user is not None:
                request.connection.owner = user.username
            # Handlers that learn a request's resource from stored data ask it again.
            caller = SignedCaller(user, request.connection.peer[0], self, checked=checked)
            request.caller = caller
            if checked:
                self._authorize_request(request, caller)
        except AuthError as error:
            source_ip = request.connection.peer[0]
            self.log.warning(
                "request %s of %s is refused: %s",
                _name_of(request.code),
                source_ip,
                error.remark,
                # A peer can send any of four billion codes: those without a name are one kind.
                cause=("refused", source_ip, _CODES.get(request.code), error.kind),
            )
            return Response(error.code, error.remark)
        return None

    def guards_reads(self, codes: Collection[int]) -> bool:
        """Whether `signer` does for requests of these codes what `check` does."""
        return (self._unsigned | self._unchecked).isdisjoint(codes)

    def signer(self, name: str) -> Signer | None:
        """Return the user of this name; None if nobody may sign with it."""
        signer = self._signers.get(name)
        if signer is None:
            user = self._find(name)
            if user is None or user.user_status is UserStatus.DISABLE:
                return None
            if len(self._signers) >= MAX_SIGNERS:
                self._signers.clear()
            signer = self._signers[name] = Signer(user, self)
        return signer

    def may_send(self, user: User, topic: str, source_ip: str) -> bool:
        """Tell whether a signed request of the user may send to the topic."""
        if not self._authorize:
            return True
        try:
            self.require(SignedCaller(user, source_ip, self), on_topic(topic, Action.PUB))
        except AuthError:
            return False
        return True

    def require(self, caller: SignedCaller, need: Need, decisions: Decisions | None = None) -> None:
        """Raise AuthError unless the need is met, by these `decisions` of the user's access list or
        by those that are remembered."""
        user = caller.user
        if user is None:
            raise AuthError("username cannot be null.", "nobody")
        if user.is_super:
            return
        length = len(need.name)
        if length > MAX_RESOURCE_NAME:
            raise AuthError(
                f"the name of {shown(str(need))} has {length} characters, {MAX_RESOURCE_NAME} are "
                "allowed",
                "permission",
            )
        if decisions is not None:
            decision = _decide(decisions, need)
        else:
            decision = self._remembered_decision(user, caller.source_ip, need)
        if decision is not Decision.ALLOW:
            why = "no matched policies" if decision is None else "the decision is deny"
            raise AuthError(
                f"User:{user.username} has no permission to access {shown(str(need))} from "
                f"{caller.source_ip}, {why}.",
                "permission",
            )

    def _remembered_decision(self, user: User, source_ip: str, need: Need) -> Decision | None:
        key = (user.username, source_ip, need)
        try:
            decision = self._decisions[key]
        except KeyError:
            decision = _decide(self._decisions_of(user, source_ip), need)
            self._remembered += len(need.name)
            if len(self._decisions) >= MAX_DECISIONS or self._remembered > MAX_REMEMBERED:
                self._forget_decisions()
            self._decisions[key] = decision
        return decision

    def _decisions_of(self, user: User, source_ip: str) -> Decisions:
        return self._acls.get(user.username, _NO_ACL).at(source_ip)

    def allows(self, caller: SignedCaller, *needs: Need) -> bool:
        """Tell whether all needs are met at this moment, which may be long after the caller's
        request: the user may have changed since. White lists exempt requests, not this."""
        signed = caller.user
        user = None if signed is None else self._find(signed.username)
        if signed is not None and (
            user is None
            or user.user_status is UserStatus.DISABLE
            or user.password != signed.password
        ):
            return False
        if not self._authorize:
            return True
        try:
            now = SignedCaller(user, caller.source_ip, self)
            for need in needs:
                self.require(now, need)
        except AuthError:
            return False
        return True

    def _forget(self) -> None:
        self._signers.clear()
        self._forget_decisions()

    def _forget_decisions(self) -> None:
        self._decisions.clear()
        self._remembered = 0

    def _user_of(self, request: Request[Any], *, needed: bool) -> User | None:
        """Return who signed the request; None if nobody has to, unless they are `needed`."""
        if request.code in self._unsigned and not needed:
            try:
                return self._signer_of(request)
            except AuthError:
                return None
        return self._signer_of(request)

    def _signer_of(self, request: Request[Any]) -> User | None:
        unsigned = request.code in self._unsigned
        fields = request.ext_fields
        name = fields.get(ACCESS_KEY, "")
        if not name:
            parent = _parent_of(request)
            if parent is not None and type(parent.caller) is SignedCaller and parent.caller.user:
                return parent.caller.user
            if unsigned:
                return None
            raise AuthError("username cannot be null.", "nobody")
        signer = self.signer(name)
        if signer is None:
            if self._find(name) is None:
                raise AuthError(f"User:{shown(name)} is not found.", "unknown")
            raise AuthError(f"User:{name} is disabled.", "disabled")
        if not signed_by(signer.key, fields, request.body, request.version):
            raise AuthError("check signature failed.", "signature")
        return signer.user

    def _authorize_request(self, request: Request[Any], caller: SignedCaller) -> None:
        if caller.is_super:
            return
        parts = needs_of(request, self._cluster)
        if parts is None:
            raise AuthError(f"request {_name_of(request.code)} needs a super user", "permission")
        needs = list(parts)
        decisions = None
        if len(needs) > _FEW and caller.user is not None:
            decisions = self._decisions_of(caller.user, caller.source_ip)
        for need in needs:
            self.require(caller, need, decisions)


def _decide(decisions: Decisions, need: Need) -> Decision | None:
    found: Decision | None = None
    for action in need.actions:
        decision = decisions.decide(need.kind, need.name, action)
        if decision is Decision.ALLOW:
            return decision
        found = found or decision
    return found


def _parent_of(request: Request[Any]) -> Request[Any] | None:
    channel = request.channel
    return channel.parent if isinstance(channel, BatchAnswers) else None


def _name_of(code: int) -> str:
    return _CODES.get(code) or str(code)
