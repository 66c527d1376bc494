"""Controller groups whose master is killed or stopped again and again while messages are sent."""
