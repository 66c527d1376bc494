"""What clients are told of an error that they did not cause.

The text of such an error may name paths of the server, or topics and groups of other users. So an
answer has the kind of the error only, and the server's log has the text.
"""

from __future__ import annotations


def kind_of(error: BaseException) -> str:
    """Return the system's words for an OSError, such as "No space left on device", or the name of
    the class."""
    return (isinstance(error, OSError) and error.strerror) or type(error).__name__


def unexpected(error: BaseException) -> str:
    """Return the remark of the answer to a request that failed with an error nobody foresaw."""
    name, kind = type(error).__name__, kind_of(error)
    return f"{name if name == kind else f'{name}: {kind}'}; the server's log has the details"
