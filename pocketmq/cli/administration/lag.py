"""`pocketmq lag`: how many stored messages a consumer group has not consumed yet."""

from __future__ import annotations

import argparse
import asyncio
from typing import Final

from pocketmq.cli.administration.cluster_command import add_action, run_action
from pocketmq.cli.administration.group_progress import progress_by_queue
from pocketmq.cli.administration.groups import existing_group
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import duration
from pocketmq.cli.output import counted, local_time, print_rows, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.connected_clients import online
from pocketmq.client.admin.traffic import Progress, Speed, speed
from pocketmq.dashboard.wording import short_time
from pocketmq.remoting.bodies.consumer import ConsumeStats

#: The shortest measurement, in seconds.
_SHORTEST: Final = 0.1


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's options."""
    parser = subparsers.add_parser(
        "lag",
        description="Prints for each queue how many stored messages a consumer group has not "
        "consumed yet, in one topic or in all in which it has offsets. CONSUMED is the offset of "
        "the group's next message; STORE TIMESTAMP is the store time of the message before it. A "
        "reset changes both although no message is consumed. --over also prints the rates of "
        "arriving and consumed messages over that time, and the time to catch up at these rates "
        "(empty if the lag does not shrink).",
    )
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topic", metavar="TOPIC", nargs="?", help="only this topic")
    parser.add_argument(
        "--over", type=duration, metavar="TIME", help="measure rates over this time, such as 10s"
    )
    add_action(parser, _lag, json=True)
    return parser


run = run_action


async def _lag(admin: Admin, options: argparse.Namespace) -> None:
    group = options.group
    await existing_group(admin, group)
    if options.topic is not None:
        await admin.topic_route(options.topic)  # an unknown topic is not a lag of 0
    before = after = await admin.consume_stats(group, options.topic)
    if options.over is not None:
        await asyncio.sleep(max(options.over, _SHORTEST))
        after = await admin.consume_stats(group, options.topic)
    rows = progress_by_queue(after)
    if options.over is not None:
        for row, moved in zip(rows, _speeds(before, after, options.over), strict=True):
            row |= {
                "inPerSecond": moved.arriving,
                "outPerSecond": moved.consuming,
                "secondsToCatchUp": moved.seconds_to_catch_up,
            }
    if options.json:
        print_rows(rows, as_json=True, empty="")
        return
    where = f" in topic {options.topic}" if options.topic else ""
    if not rows:
        print(f"group {group} has no offset{where}: it has not consumed anything there yet")
        return
    for row in rows:
        row["storeTimestamp"] = local_time(row["storeTimestamp"] or 0)
        if options.over is not None:
            row["in/s"], row["out/s"] = row.pop("inPerSecond"), row.pop("outPerSecond")
            row["catch up"] = short_time(row.pop("secondsToCatchUp"))
    print_table(rows)
    lag = sum(row["lag"] for row in rows)
    state = "" if await online(admin, group) else "; no client of the group is online"
    rate = "" if options.over is None else _told(_total(before, after, options.over), lag)
    print(f"\ngroup {group} is {counted(lag, 'message')} behind{where}{rate}{state}")


def _speeds(before: ConsumeStats, after: ConsumeStats, seconds: float) -> list[Speed]:
    """Return the rates of each queue, in order of name; 0 for a new one."""
    return [
        speed(Progress.of([before.offset_table.get(queue, now)]), Progress.of([now]), seconds)
        for queue, now in sorted(after.offset_table.items())
    ]


def _total(before: ConsumeStats, after: ConsumeStats, seconds: float) -> Speed:
    """Return the total rates of the queues that existed both times."""
    both = before.offset_table.keys() & after.offset_table.keys()
    return speed(
        Progress.of([before.offset_table[queue] for queue in both]),
        Progress.of([after.offset_table[queue] for queue in both]),
        seconds,
    )


def _told(moved: Speed, lag: int) -> str:
    rates = f": {moved.arriving} arrive in a second, {moved.consuming} are consumed"
    if not lag:
        return rates
    if moved.seconds_to_catch_up is None:
        return f"{rates}, and the lag does not shrink"
    return f"{rates}, and it catches up in {short_time(moved.seconds_to_catch_up)}"
