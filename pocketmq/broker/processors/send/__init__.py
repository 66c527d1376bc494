"""The processors that store messages for clients. The rooms, from the hot path outwards:

- `send` stores single sends and batch messages, `send_many` the sends of a batch request; they
  share a `context`; `checks` examines what is unusual, `answers` makes the answers;
- `send_back` stores what a consumer could not consume, `reply` forwards the reply to a request;
- `end_transaction` commits and rolls back half messages, `recall` cancels timed messages.
"""
