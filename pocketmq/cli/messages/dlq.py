"""`pocketmq dlq`: list the dead letters of a consumer group, and send them again."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pocketmq.cli.administration.cluster_command import CommandError, add_action, run_action
from pocketmq.cli.administration.groups import existing_group
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.connection_options import connection_of
from pocketmq.cli.messages.message_text import body_text, json_fields
from pocketmq.cli.options import add_time_range, count
from pocketmq.cli.output import complain, counted, local_time, print_json, print_rows, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.dead_letters import Choice, DeadLetters, death_of, origin_topic
from pocketmq.client.errors import RemotingError, Unavailable
from pocketmq.client.producer.producer import Producer
from pocketmq.message import properties as names
from pocketmq.message.limits import DLQ_PREFIX
from pocketmq.message.message import Message, MessageExt, MessageQueue
from pocketmq.message.sysflag import COMPRESSED
from pocketmq.remoting.serving.service import ExitCode

_PRODUCER_GROUP = "pocketmq_dlq"
_BODY_CHARACTERS = 40
_REASON_CHARACTERS = 60
#: Refused dead letters, and topics of those sent as new messages, that are named.
_MOST_REFUSALS = 10
_MOST_TOPICS = 3


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "dlq",
        description="Lists and resends dead letters: messages that a consumer group failed to "
        "consume in all attempts. Resending does not remove them from the store; for each queue, "
        "the broker keeps the offset up to which all were resent.",
    )
    actions = parser.add_subparsers(metavar="list|resend", required=True)
    listing = actions.add_parser(
        "list",
        help="the dead letters of a group, or the groups that have any",
        description="Prints the dead letters of a group that were not resent yet; without a "
        "group, the groups that have dead letters, and how many. Only dead letters from pocketmq "
        "consumers have a reason.",
    )
    listing.add_argument("group", metavar="GROUP", nargs="?")
    listing.add_argument("--all", action="store_true", help="include those that were resent")
    resend = actions.add_parser(
        "resend",
        help="send the dead letters of a group again",
        description="Resends the dead letters of a group that were not resent yet, oldest first. "
        "Only this group receives them, with one attempt: a message that fails again is a dead "
        "letter again. With --as-new, each becomes a new message of its original topic, with all "
        "attempts, for every group. If options select only some, a resent message leaves the "
        "list only when all older dead letters of its queue were resent, too. One that "
        "cannot be sent is reported, and stays in the list; the others are sent.",
    )
    resend.add_argument("group", metavar="GROUP")
    resend.add_argument(
        "--id",
        metavar="ID",
        help="only the dead letter with this id, whether resent or not",
    )
    resend.add_argument("--as-new", action="store_true", help="as new messages, for all groups")
    resend.add_argument(
        "--dry-run", action="store_true", help="send nothing; print what would be sent"
    )
    for action in (listing, resend):
        action.add_argument("--tag", metavar="TAG", help="only dead letters with this tag")
        action.add_argument("--key", metavar="KEY", help="only dead letters with this key")
        action.add_argument(
            "--reason", metavar="TEXT", help="only dead letters whose reason contains this text"
        )
        action.add_argument(
            "--exception",
            metavar="NAME",
            help="only dead letters whose handler raised this type of exception, such as "
            "PayloadError",
        )
        add_time_range(action)
        action.add_argument("--count", type=count, metavar="N", help="at most N dead letters")
    add_action(listing, _list, json=True)
    add_action(resend, _resend)
    return parser


run = run_action


async def _list(admin: Admin, options: argparse.Namespace) -> None:
    choice = _choice(options)
    if options.group is None:
        if choice != Choice():
            raise CommandError("dead letters are chosen of one group: name it", ExitCode.USAGE)
        await _list_groups(admin, options)
        return
    letters = DeadLetters(admin, options.group)
    rows: list[dict[str, Any]] = []
    listed = 0
    async for _, message in letters.messages(sent_too=options.all):
        if listed == options.count:
            break
        if not choice.has(message):
            continue
        listed += 1
        if options.json:
            print_json(_row(message, as_json=True))  # all bodies may not fit into memory
        else:
            rows.append(_row(message, as_json=False))
    if rows:
        print_table(rows)
    elif not options.json:
        await existing_group(admin, options.group)
        print(_none(options.group, choice, left=not options.all), file=sys.stderr)


def _row(message: MessageExt, as_json: bool) -> dict[str, Any]:
    death = death_of(message)
    if as_json:
        return {
            **json_fields(message),
            "originTopic": origin_topic(message),
            **death._asdict(),
        }
    return {
        "stored": local_time(message.store_timestamp),
        "originTopic": origin_topic(message),
        "id": message.msg_id,
        "keys": message.keys,
        "attempts": message.reconsume_times,
        "reason": _cut(str(death), _REASON_CHARACTERS),
        "consumer": death.consumer,
        "body": _cut(body_text(message.body), _BODY_CHARACTERS),
    }


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _choice(options: argparse.Namespace) -> Choice:
    begin, end = (
        None if time is None else round(time.timestamp() * 1000)
        for time in (options.from_time, options.until_time)
    )
    return Choice(
        msg_id=getattr(options, "id", None),
        tag=options.tag,
        key=options.key,
        reason=options.reason,
        exception=options.exception,
        begin=begin,
        end=end,
    )


def _none(group: str, choice: Choice, *, left: bool) -> str:
    """Return the text for no matching dead letters."""
    kind = "" if choice == Choice() else " such"
    return f"group {group} has no{kind} dead letters{' left to resend' if left else ''}"


async def _list_groups(admin: Admin, options: argparse.Namespace) -> None:
    rows = []
    for topic in await admin.topics():
        if topic.startswith(DLQ_PREFIX):
            group = topic.removeprefix(DLQ_PREFIX)
            bounds = (await DeadLetters(admin, group).bounds()).values()
            stored = sum(each.end - each.begin for each in bounds)
            left = sum(each.end - each.first_left for each in bounds)
            if left or (options.all and stored):
                rows.append({"group": group, "deadLetters": left, "sentAgain": stored - left})
    print_rows(rows[: options.count], as_json=options.json, empty="there are no dead letters")


async def _resend(admin: Admin, options: argparse.Namespace) -> int:
    group, choice = options.group, _choice(options)
    await existing_group(admin, group)
    letters = DeadLetters(admin, group)
    rows: list[dict[str, Any]] = []
    topics: set[str] = set()
    sent = listed = refused = 0
    oldest = {queue: each.first_left for queue, each in (await letters.bounds()).items()}
    skipped: set[MessageQueue] = set()
    async with Producer(
        _PRODUCER_GROUP,
        namesrv=options.namesrv,
        timeout=options.timeout,
        **connection_of(options),
    ) as producer:
        async for queue, message in letters.messages(sent_too=options.id is not None):
            if sent + refused == options.count:
                break
            is_left = message.queue_offset >= oldest[queue]
            if not choice.has(message):
                if is_left:
                    skipped.add(queue)
                continue
            if options.dry_run:
                sent += 1
                rows.append(_row(message, as_json=False))
                continue
            try:
                if options.as_new:
                    new = _as_new(message)
                    await producer.send(new)
                    topics.add(new.topic)
                else:
                    await admin.deliver_again(group, message)
            except (CommandError, RemotingError) as error:
                if isinstance(error, Unavailable):
                    raise
                # Others may be sent: one that nobody can send would otherwise keep them all here.
                refused += 1
                if refused <= _MOST_REFUSALS:
                    what = f"dead letter {message.msg_id} was not sent: {error}"
                    complain(what, ExitCode.FAILURE)
                if is_left:
                    skipped.add(queue)
                continue
            sent += 1
            if is_left and queue in skipped:
                listed += 1
            elif is_left:
                await letters.mark_sent(queue, message)
    if options.id is not None and not sent + refused:
        raise CommandError(f"group {group} has no dead letter with the id {options.id}")
    if not sent + refused:
        print(_none(group, choice, left=True), file=sys.stderr)
        return ExitCode.OK
    to = f"as new messages{_of(topics)}" if options.as_new else f"to group {group}"
    letters_sent = counted(sent, "dead letter")
    if options.dry_run:
        print_table(rows)
        print(f"{letters_sent} would be sent again {to}", file=sys.stderr)
        return ExitCode.OK
    print(f"sent {letters_sent} again {to}")
    if listed:
        print(
            f"{counted(listed, 'dead letter')} {'stays' if listed == 1 else 'stay'} in the "
            "list, because older ones of the queue are left; a resend of all sends "
            f"{'it' if listed == 1 else 'them'} once more",
            file=sys.stderr,
        )
    if not options.as_new and await online(admin, group) is None:
        print("no client of the group is online: they wait for one", file=sys.stderr)
    return _told_of_refused(refused)


def _told_of_refused(number: int) -> ExitCode:
    if not number:
        return ExitCode.OK
    return complain(f"{counted(number, 'dead letter')} left that cannot be sent", ExitCode.FAILURE)


def _of(topics: set[str]) -> str:
    """Return the topics that messages were sent to: they say themselves where they came from."""
    if len(topics) > _MOST_TOPICS:
        return f" of {len(topics)} topics"
    return f" of {', '.join(sorted(topics))}" if topics else ""


def _as_new(message: MessageExt) -> Message:
    """Return a message to send, with the content that the application gave the dead letter."""
    topic = origin_topic(message)
    if not topic:
        raise CommandError("nothing says which topic it came from")
    if message.sys_flag & COMPRESSED:
        raise CommandError("its body is compressed, and cannot be decompressed")
    return Message(
        topic,
        message.body,
        tags=message.tags,
        keys=message.keys,
        properties={
            name: value for name, value in message.properties.items() if name not in names.RESERVED
        },
        flag=message.flag,
        priority=message.priority,
    )
