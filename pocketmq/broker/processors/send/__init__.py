"""The processors that store messages for clients, from the hot path outwards:

- `send` stores single sends and batch messages, `send_many` the sends of a batch request or a read,
  and `send_runs` the same with compiled code; they share a `context`, and `checks` for the rest;
- `send_back` stores messages that a consumer could not consume, `reply` forwards replies;
- `end_transaction` commits and rolls back half messages, `recall` cancels timed messages.
"""
