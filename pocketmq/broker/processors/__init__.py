"""The processors: one module per request family, whose class registers its handlers.

- `send` stores what producers and consumers send; `admin` serves operators and their tools;
- `pull` reads messages, `held_pulls` keeps pulls of a batch for the client's next one, `batch`
  executes the children of a batch request;
- `client` keeps track of connected clients, `offset` of consumer offsets, `queue_lock` of the
  queues that consumers locked;
- `message_query` finds messages by key or id, `forward` passes requests on to consumers.
"""
