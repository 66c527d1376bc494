"""The same API with Flask, in several processes under gunicorn.

    pip install pocketmq flask gunicorn
    NAMESRV_ADDR=127.0.0.1:9876 gunicorn --workers 4 --threads 8 flask_app:app

Django is the same: call `producer()` in a view. gunicorn forks its workers, and a producer belongs
to the process that started it, so each worker starts its own with its first request. After SIGTERM
a worker finishes its requests, and the producer shuts down as the process exits.
"""

import atexit
from functools import cache

from flask import Flask, request
from flask.typing import ResponseReturnValue

from pocketmq import Message, Unavailable, sync

app = Flask(__name__)


@cache
def producer() -> sync.Producer:
    """The producer of this process; its threads share it."""
    made = sync.Producer("shop", timeout=5.0)
    made.start()
    atexit.register(made.shutdown)
    return made


@app.errorhandler(Unavailable)
def unavailable(error: Unavailable) -> ResponseReturnValue:
    return {"detail": str(error)}, 503, {"Retry-After": "1"}


@app.post("/orders/<order_id>")
def place(order_id: str) -> ResponseReturnValue:
    body = {"number": order_id, **request.get_json()}
    message = Message.of("orders", body, keys=[order_id])
    result = producer().send(message, key=order_id)
    return {"message": result.msg_id}, 201


@app.get("/health/ready")
def ready() -> ResponseReturnValue:
    producer().ping(timeout=1.0)
    return {"last_success": producer().last_success}
