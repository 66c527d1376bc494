"""VIEW_MESSAGE_BY_ID: one stored message by its place in the commit log.

Reference: broker QueryMessageProcessor.
"""

from __future__ import annotations

from remoting.codes import RequestCode, ResponseCode
from remoting.dispatch import Dispatcher
from remoting.headers import ViewMessageRequestHeader
from remoting.request import Request, Response
from store.errors import RecordNotFound
from store.message_store import MessageStore


class MessageQueryProcessor:
    """Message lookups of one broker."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store

    def register(self, dispatcher: Dispatcher) -> None:
        """Route the lookup codes here."""
        dispatcher.register(
            RequestCode.VIEW_MESSAGE_BY_ID, self.view_by_id, ViewMessageRequestHeader
        )

    def view_by_id(self, request: Request[ViewMessageRequestHeader]) -> Response:
        """The record at a physical offset, which is the second half of an offset message id."""
        offset = request.header.offset
        try:
            return Response(body=self._store.record_at(offset))
        except RecordNotFound:
            return Response(
                ResponseCode.SYSTEM_ERROR,
                f"can not find message by the offset, {offset}",
            )
