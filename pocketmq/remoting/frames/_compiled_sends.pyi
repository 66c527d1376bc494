class SendAnswers:
    def __init__(
        self,
        *,
        msg_id: bytes,
        json: tuple[bytes, ...],
        binary: tuple[bytes, ...],
        language: int,
        version: int,
    ) -> None: ...
