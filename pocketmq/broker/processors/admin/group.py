"""Admin requests about consumer groups (200, 201, 207, 225, 352, 353, 5003).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.processors.admin.list_deletion import ListDeletion
from pocketmq.broker.statistics.statistics import Statistics
from pocketmq.broker.tables import pages
from pocketmq.broker.tables.attributes import OF_GROUPS, AttributeChangeError, apply_changes
from pocketmq.broker.tables.consumer_offset import ConsumerOffsets
from pocketmq.broker.tables.subscription_group import SubscriptionGroups
from pocketmq.message import fastjson
from pocketmq.message.limits import IllegalName, check_new_group
from pocketmq.remoting.bodies.subscription_group import (
    DeleteSubscriptionGroupListRequestBody,
    GroupForbidden,
    SubscriptionGroupConfig,
    SubscriptionGroupList,
)
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.errors import RemotingError
from pocketmq.remoting.headers import (
    DeleteSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupRequestHeader,
    GetAllSubscriptionGroupResponseHeader,
    GetSubscriptionGroupConfigRequestHeader,
    Header,
    UpdateGroupForbiddenRequestHeader,
)
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.long_requests import Done, LongRequests, Steps, in_pieces
from pocketmq.remoting.serving.request import Request, Response

_GROUPS_OF_STEP: Final = 100  # half a millisecond


class GroupProcessor:
    """Group requests of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        statistics: Statistics,
        forget_pops: Callable[[str], None],
        long: LongRequests,
    ) -> None:
        self._config = config
        self._long = long
        self._groups = groups
        self._forget_pops = forget_pops
        self._offsets = offsets
        self._statistics = statistics
        self._lists = ListDeletion("groups")

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the group codes here."""
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.update)
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, self.update_list)
        dispatcher.register(
            RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
            self.all_configs,
            GetAllSubscriptionGroupRequestHeader,
        )
        dispatcher.register(
            RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
            self.config,
            GetSubscriptionGroupConfigRequestHeader,
        )
        dispatcher.register(
            RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete, DeleteSubscriptionGroupRequestHeader
        )
        dispatcher.register(RequestCode.DELETE_SUBSCRIPTION_GROUP_LIST, self.delete_list)
        dispatcher.register(
            RequestCode.UPDATE_AND_GET_GROUP_FORBIDDEN,
            self.forbidden,
            UpdateGroupForbiddenRequestHeader,
        )

    async def update(self, request: Request[Header]) -> Response:
        """Create or change a group."""
        return await self._update_all(request, [SubscriptionGroupConfig.of(request)])

    async def update_list(self, request: Request[Header]) -> Response:
        """Create or change several groups: all or none."""
        body = SubscriptionGroupList.of(request)
        groups = body.need("groupConfigList", body.group_config_list)
        return await self._update_all(request, groups)

    async def _update_all(
        self, request: Request[Header], groups: Sequence[SubscriptionGroupConfig]
    ) -> Response:
        begun = self._long.begin(request, self._update(groups))
        if not isinstance(begun, Done):
            await begun
        await self._groups.saved()
        return Response()

    def _update(self, groups: Sequence[SubscriptionGroupConfig]) -> Steps[None]:
        groups = [group for group in groups if not self._groups.is_light(group.group_name)]
        for some in in_pieces(groups, _GROUPS_OF_STEP):
            for group in some:
                self._check_change(group)
            yield
        # All of them may be changed.
        for some in in_pieces(groups, _GROUPS_OF_STEP):
            self._groups.update(some)
            yield

    def _check_change(self, group: SubscriptionGroupConfig) -> None:
        known = self._groups.table.get(group.group_name)
        try:
            if known is None:
                check_new_group(group.group_name)
        except IllegalName as error:
            raise RemotingError(ResponseCode.INVALID_PARAMETER, str(error)) from None
        before = None if known is None else known.attributes
        try:
            group.attributes = apply_changes(before, group.attributes, OF_GROUPS)
        except AttributeChangeError as error:
            raise RemotingError(ResponseCode.SYSTEM_ERROR, str(error)) from None

    async def all_configs(self, request: Request[GetAllSubscriptionGroupRequestHeader]) -> Response:
        """Return the group table, or a page of it."""
        header, config = request.header, self._config
        version, groups = self._groups.data_version, self._groups.table
        forbidden = self._groups.forbidden
        total = GetAllSubscriptionGroupResponseHeader(len(groups))
        if config.enable_split_metadata and header != GetAllSubscriptionGroupRequestHeader():
            most = min(config.split_metadata_size, header.max_group_num or pages.MOST)
            groups = pages.page(groups, header.group_seq or 0, most, version, header.data_version)
            forbidden = {name: topics for name, topics in forbidden.items() if name in groups}
        table = await self._long.run(request, fastjson.encode_steps(groups))
        body = {
            "dataVersion": version,
            "forbiddenTable": forbidden,
            "subscriptionGroupTable": table,
        }
        return Response(header=total, body=fastjson.encode(body))

    def config(self, request: Request[GetSubscriptionGroupConfigRequestHeader]) -> Response:
        """Return one group's settings; create the group with defaults if the broker allows that."""
        name = request.header.group
        group = self._groups.find_any(name, request.connection)
        if group is None:
            return Response(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"No group in this broker. group: {name}"
            )
        return Response(body=group.encode())

    async def delete(self, request: Request[DeleteSubscriptionGroupRequestHeader]) -> Response:
        """Delete a group, with its offsets if requested; deleting an unknown group succeeds."""
        header = request.header
        self._delete(header.group_name, clean_offset=header.clean_offset)
        await self._deleted(clean_offset=header.clean_offset)
        return Response()

    async def delete_list(self, request: Request[Header]) -> Response:
        """Delete several groups, with their offsets if requested."""
        body = DeleteSubscriptionGroupListRequestBody.of(request)
        names, clean = body.group_name_list, body.clean_offset
        for name in names or ("",):
            if not name or name.isspace():
                what = "" if names else " list"
                raise RemotingError(
                    ResponseCode.INVALID_PARAMETER, f"The specified group name{what} is blank."
                )
        rate = self._config.batch_delete_subscription_group_max_rate
        delete = partial(self._delete, clean_offset=clean)
        await self._lists.run(request, names or (), rate, delete)
        await self._deleted(clean_offset=clean)
        return Response()

    def _delete(self, name: str, *, clean_offset: bool) -> None:
        self._groups.delete(name)
        self._forget_pops(name)
        if clean_offset:
            self._offsets.forget_group(name)
        self._statistics.forget_group(name)

    async def _deleted(self, *, clean_offset: bool) -> None:
        if clean_offset:
            await self._offsets.saved()
        await self._groups.saved()

    async def forbidden(self, request: Request[UpdateGroupForbiddenRequestHeader]) -> Response:
        """Forbid or allow a group to read a topic, if requested; return the current state."""
        header = request.header
        if header.readable is not None:
            self._groups.forbid_reading(header.group, header.topic, forbidden=not header.readable)
            await self._groups.saved()
        readable = self._groups.may_read(header.group, header.topic)
        body = GroupForbidden(group=header.group, readable=readable, topic=header.topic)
        return Response(remark="", body=body.encode())
