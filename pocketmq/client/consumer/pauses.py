"""Pauses and timeouts of a consumer that are not options; tests pass shorter ones."""

from __future__ import annotations

import msgspec


class Pauses(msgspec.Struct, frozen=True):
    """All in seconds.

    Attributes:
        local_retry: pause before the local retry of a message that the broker did not take back.
            It doubles each time the broker refuses the message.
        longest_local_retry: upper limit of that pause.
        missing_topic: between two checks for a topic that does not exist yet.
        shortest_poll: between two pulls from a queue without new messages: not every broker holds
            pulls, and a slave never does.
        first_failure: pause after a failed pull. It doubles after each further failure.
        longest_failure: upper limit of that pause.
        hold_slack: timeout of a pull, beyond the time that the broker may hold it.
        first_round: how long a start waits for the first rebalance.
        incomplete_round: pause after a rebalance in which a request failed.
        lock_timeout: of a request for queue locks.
        lock_renewal: between two renewals of queue locks.
        send_back_timeout: of a request to take a message back.
        cancelled_handler: how long to wait for a cancelled handler to end.
        last_commit: timeout of the last commit, at the shutdown.
        share_callback: timeout of `on_assigned` and `on_revoked`.
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
