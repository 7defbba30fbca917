"""The one error of this package."""


class WireError(ValueError):
    """A message of the client that does not have the shape ACP v1 asks for.

    Attributes:
        detail: One short sentence that names the offending field; safe to show to the client.
    """

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail
