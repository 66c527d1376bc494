"""Hooks: your code before and after each send, and around the work on each message.

Pass objects with these methods as `hooks=` of a producer (`SendHook`, or only one half of it:
`BeforeSendHook`, `AfterSendHook`) or of a consumer (`ConsumeHook`).
"""

from pocketmq.client.consumer.consume_hooks import ConsumeContext as ConsumeContext
from pocketmq.client.consumer.consume_hooks import ConsumeHook as ConsumeHook
from pocketmq.client.producer.hooks import AfterSendHook as AfterSendHook
from pocketmq.client.producer.hooks import BeforeSendHook as BeforeSendHook
from pocketmq.client.producer.hooks import SendContext as SendContext
from pocketmq.client.producer.hooks import SendHook as SendHook
from pocketmq.client.producer.hooks import SendKind as SendKind
