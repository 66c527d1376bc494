"""Headers about users (3001 to 3005) and access lists (3006 to 3010)."""

from __future__ import annotations

from pocketmq.remoting.headers.base import Header


class UserRequestHeader(Header):
    """AUTH_CREATE_USER, AUTH_UPDATE_USER, AUTH_DELETE_USER, AUTH_GET_USER."""

    username: str | None = None


class ListUsersRequestHeader(Header):
    """AUTH_LIST_USER: those whose names contain `filter`."""

    filter: str | None = None


class AclRequestHeader(Header):
    """AUTH_CREATE_ACL, AUTH_UPDATE_ACL, AUTH_GET_ACL; `subject` is `User:name`."""

    subject: str | None = None


class DeleteAclRequestHeader(Header):
    """AUTH_DELETE_ACL: the whole list without a resource; policy_type is Custom or Default."""

    subject: str | None = None
    policy_type: str | None = None
    resource: str | None = None


class ListAclsRequestHeader(Header):
    """AUTH_LIST_ACL: lists and resources that contain the filters."""

    subject_filter: str | None = None
    resource_filter: str | None = None
