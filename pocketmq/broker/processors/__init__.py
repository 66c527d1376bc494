"""The processors: one module per request family, whose class registers its handlers.

- `send` stores messages from producers and consumers; `admin` serves operators and their tools;
- `pop` serves POP consumers;
- `pull` reads messages, `held_pulls` keeps pulls of a batch for the client's next batch, `batch`
  executes the children of a batch request;
- `client` registers clients, `offset` commits and queries offsets, `queue_lock` locks queues for
  consumers;
- `message_query` finds messages by key or id, `forward` forwards requests to consumers.
"""
