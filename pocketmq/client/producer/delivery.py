"""The attempts of one send: the next queue, the timeout of each attempt, and when to give up.

Sans-IO: the attempt itself, the clock and the selector are arguments. Rules (RIP-63):

- There is a first attempt and `retries` more; then every queue not tried yet is tried once, so that
  a send fails only when nothing is left to try.
- `retries` limits the attempts that reached a broker. An attempt that found no connection, or lost
  it, does not count: a broker that restarts is down for a second or two, and the send waits for it.
  With `retries=0`, a lost connection counts: the message may be stored, and is not sent twice.
- A broker that is no longer the master rejects sends before processing them. Such an attempt does
  not count either, unless `retries=0`: the send waits for the route to the new master.
- If a broker does not know the queue or the topic, the route is requested again. The broker counts
  as healthy, and the send continues at once with the other queues, each of them at most once.
- A broker that denies the send (NO_PERMISSION) is not tried again: another one may permit it.
- Any other answer that is not among the retried codes ends the send at once, and does not count
  against the broker: the message is wrong, or the caller may not send it. An attempt without an
  answer (no connection, lost, too late) is always retried, if possible on another broker.
- `timeout` is the total. While another broker could still be tried, an attempt gets only a share of
  the time left, so that brokers that hang do not use up the time of the others. The share is larger
  while no other broker is available: if all brokers are slow, a retry does not help.
- A broker that refused in this send, or could not be reached, is tried again only when no other
  broker is left, and after growing pauses; a pause ends early when the broker is connected. The
  pauses of one send fit into its `timeout`: the last ones are shortened.
- Each attempt after the first uses the current route: brokers that have joined since the send began
  are tried, and the send does not wait for one that has left if there are others.

Reference: DefaultMQProducerImpl.sendDefaultImpl.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar, TypeVarTuple

import msgspec

from pocketmq.client.backoff import backoff, jittered
from pocketmq.client.errors import (
    BrokerNotFound,
    InvalidMessage,
    NoRouteInfo,
    RemotingClosed,
    RemotingConnectError,
    RemotingError,
    RemotingTimeout,
    SendAttempt,
    SendTimeout,
    is_silence,
    lacks_queue,
    may_be_slave,
    refused_at_door,
    send_error,
)
from pocketmq.client.selector.pipeline import PublishQueues, QueueSelector, Tries
from pocketmq.message.message import MessageQueue
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.errors import RETRIABLE_CODES, EncodeError, GoAway

#: The shortest timeout of an attempt, seconds.
LEAST_SHARE = 0.02
#: Pauses before a busy broker is tried again: the first and the longest, seconds; each is shortened
#: by a random part of up to half.
BUSY_PAUSES = (0.02, 0.2)
#: The same for a broker that could not be reached, or refused for another reason.
PAUSES = (0.05, 1.0)

#: Codes that refuse the caller or the topic: another broker may accept the message, but this broker
#: is healthy.
_CALLERS = frozenset({ResponseCode.NO_PERMISSION, ResponseCode.TOPIC_NOT_EXIST})

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`retries`: attempts after the first, of those that count; 0: one attempt and nothing else.
    `attempt_timeout`: upper limit for one attempt, seconds; None divides the time left."""

    retries: int = 2
    attempt_timeout: float | None = None
    retried_codes: frozenset[int] = RETRIABLE_CODES

    def attempts(self, queue_count: int) -> int:
        """Return how many attempts a send to a topic with `queue_count` queues may make."""
        return 1 if self.retries <= 0 else max(1 + self.retries, queue_count)

    def counts(self, error: RemotingError) -> bool:
        """Return whether a failed attempt counts for `retries`: it reached a broker that serves
        sends."""
        if isinstance(error, RemotingClosed) or refused_at_door(error):
            return self.retries <= 0
        return not isinstance(error, RemotingConnectError | BrokerNotFound | GoAway)

    def share(self, remaining: float, made: int, other_available: bool = True) -> float:
        """Return the timeout of the next attempt, after `made` attempts, with `remaining` seconds,
        while another broker could be tried; `other_available`: one that is available."""
        if self.retries <= 0:
            return remaining
        if self.attempt_timeout is not None:
            return min(self.attempt_timeout, remaining)
        left = max(1 + self.retries - made, 2) if other_available else 2
        return max(remaining / left, min(LEAST_SHARE, remaining))


class Delivery:
    """Delivers the sends of one producer.

    `clock` returns monotonic seconds. `doubt(topic)` is called after each attempt without an
    answer, or with one that suggests that the route is out of date. `current(topic)` returns the
    queues of the current route, None without one. `wait(broker_name, seconds)` waits that long, but
    for a broker that could not be connected only until it is.
    """

    def __init__(
        self,
        selector: QueueSelector,
        policy: RetryPolicy,
        clock: Callable[[], float],
        doubt: Callable[[str], object],
        *,
        current: Callable[[str], PublishQueues | None],
        wait: Callable[[str, float], Awaitable[object]],
    ) -> None:
        self._selector = selector
        self._policy = policy
        self._clock = clock
        self._doubt = doubt
        self._current = current
        self._wait = wait

    async def deliver(
        self,
        topic: str,
        queues: PublishQueues,
        attempt: Callable[[MessageQueue, float, *Ts], Awaitable[R]],
        deadline: float,
        *what: *Ts,
        pinned: bool = False,
        oneway: bool = False,
        messages: int = 1,
    ) -> R:
        """Make attempts until one succeeds; return its result.

        `attempt(queue, timeout, *what)` makes one attempt. `deadline`: clock seconds. `pinned`: use
        only these queues, even if the route changes. `oneway`: a successful attempt tells nothing
        about the broker. `messages`: their number in the request.

        Raises:
            SendError: the attempts are used up, or an answer was final.
            SendTimeout: the deadline passed, perhaps before the first attempt.
            NoRouteInfo: the topic has no queues.
        """
        clock = self._clock
        selector = self._selector
        policy = self._policy
        queue = selector.select(queues, None, messages)
        if queue is None:
            raise NoRouteInfo(topic, "no queue")
        began = now = clock()
        if now >= deadline:
            raise SendTimeout(topic, 0.0, (), RemotingTimeout("no time was left"))
        elsewhere = queues.broker_count > 1
        failures: list[SendAttempt] = []
        counted = 0
        tries: Tries | None = None
        while True:
            share = deadline - now
            if elsewhere:
                hopeful = selector.other_available(queues, queue.broker_name)
                share = policy.share(share, len(failures), hopeful)
            item = selector.tolerance.began(queue.broker_name, now, messages)
            try:
                result = await attempt(queue, share, *what)
            except EncodeError as error:
                raise InvalidMessage(f"the message cannot be sent: {error.remark}") from error
            except RemotingError as error:
                began_attempt, now = now, clock()
                failures.append(SendAttempt(queue, now - began_attempt, error))
                again = self._learn(queue, now - began_attempt, error, policy)
                if _doubtful(error):
                    self._doubt(topic)
                counted += policy.counts(error)
                most = policy.attempts(len(queues.queues))
                if lacks_queue(error):
                    most = min(most, len(queues.queues))
                if not again or counted >= most:
                    raise send_error(topic, now - began, failures, error) from error
                if deadline - now < LEAST_SHARE:
                    raise SendTimeout(topic, now - began, failures, error) from error
            else:
                if not oneway:
                    selector.answered(queue.broker_name, clock() - now)
                return result
            finally:
                item.in_flight -= messages
            tries = tries or Tries()
            tries.failed(queue)
            if not pinned:
                queues = self._current(topic) or queues
            queues = _permitted(queues, failures)
            if not queues.queues:
                last = failures[-1].error
                raise send_error(topic, now - began, failures, last) from last
            queue = self._next(queues, tries, messages)
            pause = _pause(failures, queue.broker_name)
            if pause:
                await self._wait(queue.broker_name, min(pause, (deadline - now) / 2))
                now = clock()
                if deadline - now < LEAST_SHARE:
                    last = failures[-1].error
                    raise SendTimeout(topic, now - began, failures, last) from last
                newer = _permitted(self._current(topic) or queues, failures)
                if not pinned and newer is not queues and newer.queues:
                    queues = newer
                    queue = self._next(queues, tries, messages)
            if len(failures) >= policy.retries:
                elsewhere = not {*tries.failed_brokers, queue.broker_name}.issuperset(
                    queues.brokers
                )

    def _next(self, queues: PublishQueues, tries: Tries, messages: int) -> MessageQueue:
        # Once every queue was tried, the remaining retries may use any.
        select = self._selector.select
        queue = select(queues, tries, messages) or select(queues, None, messages)
        assert queue is not None
        return queue

    def _learn(
        self, queue: MessageQueue, elapsed: float, error: RemotingError, policy: RetryPolicy
    ) -> bool:
        """Report a failed attempt to the selector; return whether another attempt may help."""
        if is_silence(error):
            if not error.retriable:
                return False  # the client was shut down, or does not trust the broker
            self._selector.silent(queue.broker_name, elapsed)
            return True
        if isinstance(error, BrokerNotFound):
            return True  # no request was sent: this tells nothing about the broker
        if lacks_queue(error):
            return True  # the broker is healthy
        again = error.retriable and error.code in policy.retried_codes
        # Refusing a message or a caller tells nothing about the broker.
        if again and error.code not in _CALLERS:
            self._selector.refused(queue.broker_name, elapsed)
        return again


def _permitted(queues: PublishQueues, failures: Sequence[SendAttempt]) -> PublishQueues:
    """Return the queues without those of brokers that denied this send."""
    denied = {
        tried.queue.broker_name
        for tried in failures
        if tried.error.code == ResponseCode.NO_PERMISSION
    }
    if denied.isdisjoint(queues.brokers):
        return queues
    return PublishQueues([queue for queue in queues.queues if queue.broker_name not in denied])


def _doubtful(error: RemotingError) -> bool:
    """Return whether the failure of an attempt suggests that the route is out of date."""
    return (
        isinstance(error, BrokerNotFound)
        or is_silence(error)
        or may_be_slave(error)
        or lacks_queue(error)
        or error.code == ResponseCode.TOPIC_NOT_EXIST
    )


def _pause(failures: Sequence[SendAttempt], broker_name: str) -> float:
    """Return the pause in seconds before the broker is tried again, by its failures in this
    send."""
    # An attempt that timed out has waited long enough, and a missing queue does not mean that the
    # broker is in trouble.
    errors = [
        tried.error
        for tried in failures
        if tried.queue.broker_name == broker_name
        and not isinstance(tried.error, RemotingTimeout)
        and not lacks_queue(tried.error)
    ]
    if not errors:
        return 0.0
    last = errors[-1]
    busy = last.code == ResponseCode.SYSTEM_BUSY and not refused_at_door(last)
    pauses = BUSY_PAUSES if busy else PAUSES
    return jittered(backoff(*pauses, len(errors)))
