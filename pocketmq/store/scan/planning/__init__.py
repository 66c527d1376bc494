"""What a read covers, and its division into tasks."""
