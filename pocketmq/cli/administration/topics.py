"""`pocketmq topics`: list, show, create, and delete topics."""

from __future__ import annotations

import argparse
from functools import partial

from pocketmq.cli.administration.cluster_command import (
    add_action,
    add_place_options,
    check_cluster,
    run_action,
)
from pocketmq.cli.administration.confirmation import confirm
from pocketmq.cli.command_parser import CommandParser, Subparsers
from pocketmq.cli.options import count
from pocketmq.cli.output import counted, local_time, print_json, print_table
from pocketmq.client.admin import Admin
from pocketmq.client.admin.system_names import users_topics
from pocketmq.client.errors import NoRouteInfo
from pocketmq.message.incarnation import (
    CREATED_OFFSET,
    CREATED_TIME,
    created_offset,
    created_time,
)

_PERMISSIONS = {"read": 4, "write": 2, "both": 6}


def add_parser(subparsers: Subparsers) -> CommandParser:
    """The command's sub-commands and their options."""
    parser = subparsers.add_parser(
        "topics", description="Lists, shows, creates, and deletes topics."
    )
    actions = parser.add_subparsers(metavar="list|show|create|delete", required=True)

    listing = actions.add_parser(
        "list",
        help="the names of the topics",
        description="Prints the topics of the cluster, without system, retry, and dead-letter "
        "topics.",
    )
    listing.add_argument(
        "--all", action="store_true", help="include system, retry, and dead-letter topics"
    )
    listing.add_argument("--cluster", help="only the topics of this cluster")

    show = actions.add_parser(
        "show",
        help="the queues of a topic and the groups that read it",
        description="Prints each queue of a topic with its first and next offset and the time of "
        "its last message, and the consumer groups that have an offset in the topic.",
    )
    show.add_argument("topic", metavar="TOPIC")

    create = actions.add_parser(
        "create",
        help="create a topic, or change it",
        description="Creates a topic on every broker, on those of a cluster, or on one. An "
        "existing topic gets the settings that you name, and the defaults of --queues and "
        "--permission.",
    )
    create.add_argument("topic", metavar="TOPIC")
    create.add_argument(
        "--queues", type=count, default=8, metavar="N", help="queues on each broker (default 8)"
    )
    create.add_argument(
        "--permission",
        choices=_PERMISSIONS,
        default="both",
        help="what clients may do (default both)",
    )
    create.add_argument(
        "--type",
        choices=("normal", "fifo", "delay", "transaction", "mixed", "priority"),
        help="type of its messages (attribute message.type)",
    )
    create.add_argument(
        "--if-not-exists", action="store_true", help="do not change a topic that exists"
    )
    create.add_argument(
        "--allow-shrink",
        action="store_true",
        help="allow fewer queues than the topic has; messages in the removed queues can no longer "
        "be read",
    )
    add_place_options(create)

    delete = actions.add_parser(
        "delete",
        help="delete topics with their messages",
        description="Deletes topics from the brokers and the name servers. Their messages can no "
        "longer be read.",
    )
    delete.add_argument("topics", metavar="TOPIC", nargs="+")
    delete.add_argument("--cluster", help="only on the brokers of this cluster")
    delete.add_argument("--yes", action="store_true", help="do not ask")

    add_action(listing, _list, json=True)
    add_action(show, _show, json=True)
    add_action(create, _create)
    add_action(delete, _delete)
    return parser


run = run_action


async def _list(admin: Admin, options: argparse.Namespace) -> None:
    cluster = options.cluster
    await check_cluster(admin, cluster)
    listed = admin.topics if options.all else partial(users_topics, admin)
    for topic in await listed(cluster=cluster):
        if options.json:
            print_json({"topic": topic})
        else:
            print(topic)


async def _show(admin: Admin, options: argparse.Namespace) -> None:
    topic = options.topic
    stats = await admin.topic_stats(topic)
    configs = await admin.topic_configs(topic)
    routes = {each.broker_name: each for each in (await admin.topic_route(topic)).queue_datas}
    effective = {
        name: config.perm & routes[name].perm if name in routes else config.perm
        for name, config in configs.items()
    }
    groups = await admin.groups_of_topic(topic)
    unreadable = [
        {"broker": queue.broker_name, "queue": queue.queue_id, "messages": messages}
        for queue, messages in sorted((await admin.unreadable_queues(topic)).items())
    ]
    queues = [
        {
            "broker": queue.broker_name,
            "queue": queue.queue_id,
            "first": bounds.min_offset,
            "next": bounds.max_offset,
            "messages": bounds.max_offset - bounds.min_offset,
            "lastStored": bounds.last_update_timestamp or None,
        }
        for queue, bounds in sorted(stats.offset_table.items())
    ]
    if options.json:
        brokers = {
            name: {
                "readQueues": config.read_queue_nums,
                "writeQueues": config.write_queue_nums,
                "permission": _permission(effective[name]),
                "topicPermission": _permission(config.perm),
                "attributes": {
                    key: value
                    for key, value in config.attributes.items()
                    if key not in (CREATED_OFFSET, CREATED_TIME)
                },
                "created": created_time(config.attributes) or None,
                "createdOffset": created_offset(config.attributes),
            }
            for name, config in configs.items()
        }
        print_json(
            {
                "topic": topic,
                "brokers": brokers,
                "queues": queues,
                "unreadable": unreadable,
                "groups": groups,
            }
        )
        return
    for name, config in configs.items():
        queues_text = counted(config.write_queue_nums, "queue")
        if config.read_queue_nums != config.write_queue_nums:
            queues_text += f" to write, {config.read_queue_nums} to read"
        kind = config.attributes.get("message.type")
        created = created_time(config.attributes)
        told = _permission(effective[name])
        if effective[name] != config.perm:
            told += (
                f" (the topic itself: {_permission(config.perm)}; the broker is drained, by "
                "brokerPermission or at the name servers)"
            )
        print(
            f"{name}: {queues_text}, {told}"
            + (f", {kind}" if kind else "")
            + (f", created {local_time(created)}" if created else "")
        )
    print()
    for queue in queues:
        queue["lastStored"] = local_time(queue["lastStored"] or 0)  # type: ignore[arg-type]
    if queues:
        print_table(queues)
        print()
    for left in unreadable:
        print(
            f"{left['broker']}: nobody can read {counted(left['messages'], 'message')} in queue "  # type: ignore[arg-type]
            f"{left['queue']}, which the topic no longer has"
        )
    print("groups: " + (", ".join(groups) or "none has an offset in this topic"))


def _permission(perm: int) -> str:
    words = [word for word, bit in (("read", 4), ("write", 2)) if perm & bit]
    return " and ".join(words) or "neither read nor write"


async def _create(admin: Admin, options: argparse.Namespace) -> None:
    await check_cluster(admin, options.cluster)
    brokers = await admin.create_topic(
        options.topic,
        queues=options.queues,
        perm=_PERMISSIONS[options.permission],
        cluster=options.cluster,
        broker=options.broker,
        attributes={"message.type": options.type.upper()} if options.type else None,
        if_not_exists=options.if_not_exists,
        allow_shrink=options.allow_shrink,
    )
    if not brokers:
        print(f"topic {options.topic} exists, unchanged")
        return
    each = " each" if len(brokers) > 1 else ""
    print(
        f"topic {options.topic} has {counted(options.queues, 'queue')}{each} "
        f"on {', '.join(brokers)}"
    )


async def _delete(admin: Admin, options: argparse.Namespace) -> None:
    topics = list(dict.fromkeys(options.topics))
    known = set(await admin.topics())
    for topic in topics:
        if topic not in known:
            raise NoRouteInfo(topic, "it does not exist")
    await check_cluster(admin, options.cluster)
    if len(topics) == 1:
        confirm(f"Delete topic {topics[0]} with all its messages?", options.yes)
        await admin.delete_topic(topics[0], cluster=options.cluster)
    else:
        confirm(f"Delete topics {', '.join(topics)} with all their messages?", options.yes)
        await admin.delete_topics(topics, cluster=options.cluster)
    for topic in topics:
        print(f"topic {topic} is deleted")
