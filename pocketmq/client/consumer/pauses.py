"""How long a consumer pauses and waits where no option says so; tests pass shorter times."""

from __future__ import annotations

import msgspec


class Pauses(msgspec.Struct, frozen=True):
    """All in seconds.

    Attributes:
        local_retry: before a message that the broker did not take back is tried here again.
        longest_local_retry: twice as long after each time that the broker refuses it, at most this.
        missing_topic: between two looks for a topic that does not exist yet.
        shortest_poll: between two pulls of a queue without news: not every broker holds a pull,
            and a slave never does.
        first_failure: after a queue could not be read.
        longest_failure: twice as long after each further failure, at most this.
        hold_slack: for the answer to a pull, beyond the time that the broker may hold it.
        first_round: for the first round of sharing queues, which a start waits for.
        incomplete_round: after a round of sharing queues in which something could not be asked.
        lock_timeout: for the answer to a request for locks.
        lock_renewal: between two renewals of the locks of queues.
        send_back_timeout: for the answer of a broker that is to take a message back.
        cancelled_handler: for a handler to end that was cancelled.
        last_commit: for the last commit, at shutdown.
        share_callback: for `on_assigned` and `on_revoked` to end.
    """

    local_retry: float = 5.0
    longest_local_retry: float = 300.0
    missing_topic: float = 1.0
    shortest_poll: float = 0.1
    first_failure: float = 0.1
    longest_failure: float = 1.0
    hold_slack: float = 15.0
    first_round: float = 3.0
    incomplete_round: float = 1.0
    lock_timeout: float = 1.0
    lock_renewal: float = 20.0
    send_back_timeout: float = 5.0
    cancelled_handler: float = 5.0
    last_commit: float = 3.0
    share_callback: float = 10.0
