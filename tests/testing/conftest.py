pytest_plugins = ["pocketmq.testing"]
