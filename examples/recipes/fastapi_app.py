"""An HTTP API that sends a message for each order.

    pip install pocketmq fastapi uvicorn
    NAMESRV_ADDR=127.0.0.1:9876 uvicorn fastapi_app:app

One producer serves all requests: requests that arrive together share batches. When the process gets
SIGTERM, uvicorn finishes the requests that it has accepted, and then the producer shuts down.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from pocketmq import Message, Producer, Unavailable

# The address comes from the environment (NAMESRV_ADDR). The timeout is shorter than that of the
# HTTP client, so that the client gets an answer.
producer = Producer("shop", timeout=5.0)


@asynccontextmanager
async def lifespan(_: FastAPI) -> AsyncIterator[None]:
    async with producer:
        yield


app = FastAPI(lifespan=lifespan)


class Order(BaseModel):
    item: str
    amount: float


@app.exception_handler(Unavailable)
async def unavailable(_: Request, error: Exception) -> JSONResponse:
    """Every outage of the brokers, in whichever call, is a 503."""
    return JSONResponse({"detail": str(error)}, 503, {"Retry-After": "1"})


@app.post("/orders/{order_id}", status_code=201)
async def place(order_id: str, order: Order) -> dict[str, str]:
    """The key keeps the messages of one order in order."""
    body = {"number": order_id, **order.model_dump()}
    message = Message.of("orders", body, keys=[order_id])
    result = await producer.send(message, key=order_id)
    return {"message": result.msg_id}


@app.get("/health/live")
async def live() -> dict[str, bool]:
    """Restart the process when this fails. The producer survives outages, so it does not count."""
    return {"running": producer.running}


@app.get("/health/ready")
async def ready() -> dict[str, float | None]:
    """Send the process no requests while this is a 503."""
    await producer.ping(timeout=1.0)
    return {"last_success": producer.last_success}
