"""The admin requests for users (3001 to 3005) and access lists (3006 to 3010).

They are served only if requests have to be signed: a stranger must not be able to create the user
that an operator will later trust. Only super users change super users, and the last enabled one
stays. Passwords are shown to super users only.
Reference: broker AdminBrokerProcessor, AuthenticationMetadataManagerImpl,
AuthorizationMetadataManagerImpl.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from pocketmq.auth.errors import AuthError
from pocketmq.auth.guard import SignedCaller
from pocketmq.auth.policies import Acl, PolicyType, Resource
from pocketmq.auth.store import AclInfo, AuthTables, UserInfo
from pocketmq.auth.users import User, UserStatus, by_name, name_of
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import BodyError, RemotingError
from pocketmq.remoting.headers.auth import (
    AclRequestHeader,
    DeleteAclRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UserRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response

T = TypeVar("T")

UserRequest = Request[UserRequestHeader]
AclRequest = Request[AclRequestHeader]


class AuthProcessor:
    """Requests about the users of one process; None where requests need no signature."""

    def __init__(self, tables: AuthTables | None) -> None:
        self._tables_or_none = tables

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes of users and access lists here."""
        for code, user_handler in (
            (RequestCode.AUTH_CREATE_USER, self.create_user),
            (RequestCode.AUTH_UPDATE_USER, self.update_user),
            (RequestCode.AUTH_DELETE_USER, self.delete_user),
            (RequestCode.AUTH_GET_USER, self.get_user),
        ):
            dispatcher.register(code, user_handler, UserRequestHeader)
        dispatcher.register(RequestCode.AUTH_LIST_USER, self.list_users, ListUsersRequestHeader)
        dispatcher.register(RequestCode.AUTH_CREATE_ACL, self.create_acl, AclRequestHeader)
        dispatcher.register(RequestCode.AUTH_UPDATE_ACL, self.update_acl, AclRequestHeader)
        dispatcher.register(RequestCode.AUTH_DELETE_ACL, self.delete_acl, DeleteAclRequestHeader)
        dispatcher.register(RequestCode.AUTH_GET_ACL, self.get_acl, AclRequestHeader)
        dispatcher.register(RequestCode.AUTH_LIST_ACL, self.list_acls, ListAclsRequestHeader)

    @property
    def _tables(self) -> AuthTables:
        if self._tables_or_none is None:
            raise AuthError("users are managed only where authenticationEnabled is true")
        return self._tables_or_none

    async def create_user(self, request: UserRequest) -> Response:
        """Create a user."""
        tables = self._tables
        name = _not_blank("username", request.header.username)
        user = _decode(request, UserInfo).user(name)
        if tables.find(name) is not None:
            raise AuthError("The user is existed")
        self._check_super(request, user)
        tables.put_user(user)
        await tables.saved()
        return Response()

    async def update_user(self, request: UserRequest) -> Response:
        """Change the fields that the body names: password, type, status."""
        tables = self._tables
        name = _not_blank("username", request.header.username)
        before = tables.users.get(name)
        if before is None:
            raise AuthError("The user is not exist")
        user = _decode(request, UserInfo).user(name, before)
        self._check_super(request, before, user)
        self._check_last(before, user)
        tables.put_user(user)
        await tables.saved()
        return Response()

    async def delete_user(self, request: UserRequest) -> Response:
        """Forget a user and their access list; an unknown one succeeds."""
        tables = self._tables
        name = _not_blank("username", request.header.username)
        before = tables.users.get(name)
        if before is not None:
            self._check_super(request, before)
            self._check_last(before, None)
            tables.delete_user(name)
        await tables.saved()
        return Response()

    def get_user(self, request: UserRequest) -> Response:
        """Return one user; without a body for an unknown one."""
        user = self._tables.users.get(_not_blank("username", request.header.username))
        if user is None:
            return Response()
        return Response(body=msgspec.json.encode(UserInfo.of(user, password=_is_super(request))))

    def list_users(self, request: Request[ListUsersRequestHeader]) -> Response:
        """Return the users whose names contain the filter."""
        wanted = request.header.filter or ""
        password = _is_super(request)
        found = [
            UserInfo.of(user, password=password)
            for name, user in self._tables.users.items()
            if wanted in name
        ]
        return Response(body=msgspec.json.encode(found))

    async def create_acl(self, request: AclRequest) -> Response:
        """Add entries to a user's access list; each replaces the one with the same resource."""
        return await self._put_acl(request)

    async def update_acl(self, request: AclRequest) -> Response:
        """Do the same: the reference makes no difference."""
        return await self._put_acl(request)

    async def _put_acl(self, request: AclRequest) -> Response:
        tables = self._tables
        name = name_of(_not_blank("subject", request.header.subject))
        info = _decode(request, AclInfo)
        if info.subject and name_of(info.subject) != name:
            raise AuthError(f"the body is about {info.subject[:80]!r}, and the header about {name}")
        if name not in tables.users:
            raise AuthError(f"The subject of User:{name} is not exist.")
        tables.put_acl(name, info.merged_into(tables.acls.get(name, Acl())))
        await tables.saved()
        return Response()

    async def delete_acl(self, request: Request[DeleteAclRequestHeader]) -> Response:
        """Remove one resource from a user's access list, or the whole list."""
        tables = self._tables
        header = request.header
        name = name_of(_not_blank("subject", header.subject))
        if name not in tables.users:
            raise AuthError("The subject is not exist.")
        acl = tables.acls.get(name)
        if acl is None:
            raise AuthError("The acl is not exist.")
        if header.resource and header.resource.strip():
            kind = by_name(PolicyType, header.policy_type or PolicyType.CUSTOM.value)
            acl = acl.without(kind, Resource.parse(header.resource.strip()))
        else:
            acl = Acl()
        tables.put_acl(name, acl)
        await tables.saved()
        return Response()

    def get_acl(self, request: AclRequest) -> Response:
        """Return a user's access list; without a body if the user has none."""
        tables = self._tables
        name = name_of(_not_blank("subject", request.header.subject))
        if name not in tables.users:
            raise AuthError("The subject is not exist.")
        acl = tables.acls.get(name)
        if acl is None:
            return Response()
        return Response(body=msgspec.json.encode(AclInfo.of(name, acl)))

    def list_acls(self, request: Request[ListAclsRequestHeader]) -> Response:
        """Return the access lists whose subject and resources contain the filters."""
        subject = request.header.subject_filter or ""
        resource = request.header.resource_filter or ""
        found = [
            AclInfo.of(name, acl, lambda text: resource in text)
            for name, acl in self._tables.acls.items()
            if subject in f"User:{name}"
        ]
        return Response(body=msgspec.json.encode([info for info in found if info.policies]))

    def _check_super(self, request: Request[Any], *users: User) -> None:
        if any(user.is_super for user in users) and not _is_super(request):
            raise AuthError("The super user can only be created or changed by a super user")

    def _check_last(self, before: User, after: User | None) -> None:
        """Refuse a change after which nobody could manage users."""
        if not _rules(before) or (after is not None and _rules(after)):
            return
        if sum(_rules(user) for user in self._tables.users.values()) == 1:
            raise AuthError(f"User:{before.username} is the last super user that is enabled")


def _rules(user: User) -> bool:
    return user.is_super and user.user_status is UserStatus.ENABLE


def _is_super(request: Request[Any]) -> bool:
    caller = request.caller
    return isinstance(caller, SignedCaller) and caller.is_super


def _not_blank(what: str, text: str | None) -> str:
    if text is None or not text.strip():
        raise RemotingError(ResponseCode.INVALID_PARAMETER, f"The {what} is blank")
    return text.strip()


def _decode(request: Request[Any], kind: type[T]) -> T:
    if not request.body:
        raise BodyError(f"no body where a {kind.__name__} is expected")
    try:
        return msgspec.json.decode(request.body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        # The error names the position, not the value.
        raise BodyError(f"the body is not a {kind.__name__}: {error}") from None
