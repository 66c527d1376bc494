"""The asyncio client: producers, consumers and administration over the remoting protocol."""
