"""What every test shares."""

from hypothesis import settings

# A deadline per example would be an assertion on speed: it fails on a busy machine.
settings.register_profile("pocketmq", deadline=None)
settings.load_profile("pocketmq")
