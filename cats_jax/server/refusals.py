"""Requests that the server does not answer, and OpenAI's error object with the reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RefusedRequestError(Exception):
    """A request is refused.

    Attributes:
        status: HTTP status, 400..599.
        reason: the refusal in one word, for the metrics and as `code` of the error object.
        param: parameter of the request that is at fault, or None.
        headers: headers of the response.
        ended: whether the request's search had been accepted; the engine counts how it ended.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
        ended: bool = False,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.param = param
        self.headers = headers
        self.ended = ended

    def as_object(self) -> dict[str, Any]:
        """OpenAI's error object."""
        kinds = {401: "authentication_error", 429: "rate_limit_error"}
        other = "server_error" if self.status >= 500 else "invalid_request_error"
        kind = kinds.get(self.status, other)
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.reason}
        return {"error": error}


def bad_request(message: str, param: str | None = None) -> RefusedRequestError:
    """The refusal of a request that breaks a rule."""
    return RefusedRequestError(400, "invalid_request", message, param=param)


def unavailable(reason: str, message: str, *, ended: bool = False) -> RefusedRequestError:
    """The refusal of a request that this server can't answer any more."""
    return RefusedRequestError(503, reason, message, headers={"Retry-After": "5"}, ended=ended)
