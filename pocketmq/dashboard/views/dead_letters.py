"""Dead letters: the groups that have any, those of a group, and resending them."""

from __future__ import annotations

from typing import Final

import msgspec

from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.dead_letters import DeadLetters, Death, death_of, origin_topic
from pocketmq.client.admin.traffic import each
from pocketmq.client.errors import RemotingError, SubscriptionGroupNotExist, Unavailable
from pocketmq.dashboard.views.listing import Listing, matching, page_of
from pocketmq.message.limits import DLQ_PREFIX
from pocketmq.message.message import MessageExt, MessageQueue

#: Dead letters on one page, and dead letters that one click resends.
MOST_LISTED: Final = 50
MOST_RESENT: Final = 500
#: Bytes of a body that the page keeps: it shows fewer characters, and bodies have up to 4 MiB each.
MOST_BODY: Final = 1024


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A group: its dead letters that were not resent, and all that are stored."""

    group: str
    left: int
    stored: int


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """One dead letter, with the beginning of its body. `is_left`: it was not resent yet."""

    message: MessageExt
    origin_topic: str
    death: Death
    is_left: bool


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """The dead letters of a group, in order within each queue, and their number."""

    group: str
    letters: list[DeadLetter]
    left: int
    stored: int
    clients: int


class Resent(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters were resent, and how many the broker refused. `is_listed`: some that
    were resent stay in the list of those left."""

    sent: int
    refused: int = 0
    is_listed: bool = False


async def dead_letter_groups(
    admin: Admin, *, text: str = "", page: int = 1
) -> Listing[DeadLetterGroup]:
    """Return a page of the groups with dead letters whose names contain `text`."""
    names = [
        name.removeprefix(DLQ_PREFIX)
        for name in await admin.topics()
        if name.startswith(DLQ_PREFIX)
    ]
    listing = page_of(matching(names, text), page)

    async def row(group: str) -> DeadLetterGroup:
        bounds = await DeadLetters(admin, group).bounds()
        return DeadLetterGroup(
            group=group,
            left=sum(each.end - each.first_left for each in bounds.values()),
            stored=sum(each.end - each.begin for each in bounds.values()),
        )

    rows = [*(await each(listing.entries, row)).values()]
    rows.sort(key=lambda row: (-row.left, row.group))
    return Listing(entries=rows, page=listing.page, pages=listing.pages, total=listing.total)


async def dead_letter_view(admin: Admin, group: str, *, all: bool = False) -> DeadLetterView:
    """Return the dead letters of a group that were not resent, or `all`; at most `MOST_LISTED`.

    Raises SubscriptionGroupNotExist for a group without dead letters that does not exist.
    """
    letters = DeadLetters(admin, group)
    bounds = await letters.bounds()
    if not bounds and group not in await admin.groups():
        raise SubscriptionGroupNotExist(f"consumer group {group} does not exist")
    found = []
    async for queue, message in letters.messages(sent_too=all):
        message.body = message.body[:MOST_BODY]
        found.append(
            DeadLetter(
                message=message,
                origin_topic=origin_topic(message),
                death=death_of(message),
                is_left=message.queue_offset >= bounds[queue].first_left,
            )
        )
        if len(found) == MOST_LISTED:
            break
    connected = await online(admin, group)
    return DeadLetterView(
        group=group,
        letters=found,
        left=sum(each.end - each.first_left for each in bounds.values()),
        stored=sum(each.end - each.begin for each in bounds.values()),
        clients=0 if connected is None else len(connected.connection_set),
    )


async def resend_one(admin: Admin, group: str, queue: MessageQueue, offset: int) -> Resent:
    """Resend one dead letter to the group.

    Brokers only store an offset up to which all were resent, so a dead letter stays in the list
    unless it is the oldest one left in its queue.
    """
    letters = DeadLetters(admin, group)
    message = await admin.message_at(queue, offset)
    if message is None or queue.topic != letters.topic:
        return Resent(sent=0)
    first_left = (await letters.bounds())[queue].first_left
    await admin.deliver_again(group, message)
    if offset == first_left:
        await letters.mark_sent(queue, message)
    return Resent(sent=1, is_listed=offset > first_left)


async def resend_left(admin: Admin, group: str) -> Resent:
    """Resend the dead letters that are left to the group, at most `MOST_RESENT`.

    One that the broker refuses stays in the list, with those after it in its queue. Raises the
    first refusal if all are refused.
    """
    letters = DeadLetters(admin, group)
    sent = 0
    refusals: list[RemotingError] = []
    blocked: set[MessageQueue] = set()
    is_listed = False
    async for queue, message in letters.messages(sent_too=False):
        try:
            await admin.deliver_again(group, message)
        except Unavailable:
            raise
        except RemotingError as refusal:
            refusals.append(refusal)
            blocked.add(queue)
        else:
            sent += 1
            if queue in blocked:
                is_listed = True
            else:
                await letters.mark_sent(queue, message)
        if sent + len(refusals) == MOST_RESENT:
            break
    if refusals and not sent:
        raise refusals[0]
    return Resent(sent=sent, refused=len(refusals), is_listed=is_listed)
