"""A member of a controller group: notifications of its controller (1008), and its epochs (1007).

Reference: broker AdminBrokerProcessor.
"""

from __future__ import annotations

from pocketmq.broker.controller.group_replication import GroupReplication
from pocketmq.broker.controller.replica import RoleTold
from pocketmq.remoting.bodies.controller import SyncStateSet
from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.headers import Header, NotifyBrokerRoleChangedRequestHeader
from pocketmq.remoting.serving.dispatch import Dispatcher
from pocketmq.remoting.serving.request import Request, Response


class ControllerModeProcessor:
    """Requests to a member of a group; `group` is None for a broker that is not a member."""

    def __init__(self, group: GroupReplication | None) -> None:
        self._group = group

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the codes here."""
        dispatcher.register(RequestCode.GET_BROKER_EPOCH_CACHE, self.epoch_cache)
        dispatcher.register(
            RequestCode.NOTIFY_BROKER_ROLE_CHANGED,
            self.role_changed,
            NotifyBrokerRoleChangedRequestHeader,
        )

    def epoch_cache(self, request: Request[Header]) -> Response:
        """Return the epochs, for getBrokerEpoch."""
        if self._group is None:
            return _not_a_member()
        return Response(body=self._group.epoch_cache().encode())

    def role_changed(self, request: Request[NotifyBrokerRoleChangedRequestHeader]) -> Response:
        """Take the role that the controller assigns."""
        header = request.header
        if self._group is None:
            return _not_a_member()
        if header.master_broker_id and header.master_address and header.master_epoch is not None:
            members, set_epoch = None, header.sync_state_set_epoch or 0
            if request.body:
                told = SyncStateSet.decode(request.body)
                members, set_epoch = frozenset(told.sync_state_set), told.sync_state_set_epoch
            self._group.told(
                RoleTold(
                    header.master_broker_id,
                    header.master_address,
                    header.master_epoch,
                    members,
                    set_epoch,
                )
            )
        return Response()


def _not_a_member() -> Response:
    return Response(
        ResponseCode.SYSTEM_ERROR, "this broker is not in controller mode (enableControllerMode)"
    )
