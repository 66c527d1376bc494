"""Headers of transactions."""

from __future__ import annotations

from pocketmq.remoting.headers.base import I32, I64, Header


class EndTransactionRequestHeader(Header):
    """END_TRANSACTION (37), normally oneway.

    Attributes:
        tran_state_table_offset: queue offset of the half message.
        commit_log_offset: physical offset of the half message.
        commit_or_rollback: 8 commit, 12 rollback, 0 unknown (never answered).
        from_transaction_check: an answer to CHECK_TRANSACTION_STATE.
    """

    producer_group: str
    tran_state_table_offset: I64
    commit_log_offset: I64
    commit_or_rollback: I32
    msg_id: str
    topic: str | None = None
    from_transaction_check: bool = False
    transaction_id: str | None = None
    bname: str | None = None


class CheckTransactionStateRequestHeader(Header):
    """CHECK_TRANSACTION_STATE (39), broker to producer, oneway; the body is the half message."""

    tran_state_table_offset: I64
    commit_log_offset: I64
    topic: str | None = None
    msg_id: str | None = None
    transaction_id: str | None = None
    offset_msg_id: str | None = None
    bname: str | None = None
