"""Report failures of model providers, and responses that are not complete, as HarnessError."""

from __future__ import annotations

from pydantic_ai.exceptions import AgentRunError, ModelAPIError, ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.messages import ModelResponse

from heliograph.codes import AUTH_ERROR, NETWORK_ERROR, RATE_LIMITED
from heliograph.error_text import without_keys
from heliograph.errors import HarnessError
from heliograph.ports import ModelRequest

_TOO_MANY = 429
_TEMPORARY = (408, 409, 425, _TOO_MANY)
_UNAUTHORIZED = (401, 403)


def is_cut(response: ModelResponse, request: ModelRequest) -> bool:
    """Whether the response ended at the request's own limit of output tokens: a valid, if shorter, reply."""
    return response.finish_reason == "length" and request.output_tokens_max is not None


def check_complete(model: str, response: ModelResponse, request: ModelRequest, tokens: int) -> None:
    """Raise HarnessError for an incomplete response: half a text is no reply, and half a tool call would be another call.

    model: its name for the message. tokens: the usage of this response and of the earlier ones to the same request.
    """
    try:
        _check_complete(model, response, request)
    except HarnessError as error:
        error.tokens = tokens or None
        raise


def _check_complete(model: str, response: ModelResponse, request: ModelRequest) -> None:
    reason = (response.provider_details or {}).get("finish_reason") or response.finish_reason
    if response.finish_reason == "length" and not is_cut(response, request):
        raise HarnessError(f"{model} reached its limit of output tokens ({reason}); raise the limit in the settings of a "
                           "pydantic-ai model, or give it a smaller task")  # fmt: skip
    if response.finish_reason == "content_filter":
        raise HarnessError(
            f"{model} refused to answer, or its provider's filter stopped it ({reason}); change the prompt"
        )
    if response.finish_reason == "error" or response.state != "complete" or not _has_ended(response):
        detail = f"finish reason: {reason}" if _has_ended(response) else "the provider sent no finish reason"
        raise HarnessError(
            f"{model} stopped in the middle of its response ({detail}); a retry may succeed", recoverable=True
        )


def _has_ended(response: ModelResponse) -> bool:
    """Whether the provider marked the end of its response: a lost connection looks like an end otherwise."""
    if response.provider_url is None:
        return True  # a model that the application implements
    if response.finish_reason == "stop" and response.provider_name != "xai":  # xai reports no reason of its own
        # pydantic-ai itself sets "stop" if a stream of OpenAI's chat protocol ends without a reason
        return "finish_reason" in (response.provider_details or {})
    return bool(response.finish_reason or (response.provider_details or {}).get("finish_reason"))


def harness_error(model: str, error: AgentRunError | UserError) -> HarnessError:
    """Convert an error of pydantic-ai: whether it is temporary, how long to wait, and which tokens were used.

    model: its name for the message.
    """
    if isinstance(error, ModelHTTPError):
        return _rejection(model, error)
    if isinstance(error, ModelAPIError):  # no connection, or a lost one
        return HarnessError(f"{model}: {error}", code=NETWORK_ERROR, recoverable=True,
                            retry_after_seconds=error.retry_after or 0.0)  # fmt: skip
    if isinstance(error, UserError):
        return HarnessError(f"{model} does not support this request: {error}")
    return HarnessError(
        f"{model} sent a response that cannot be used: {error}", recoverable=isinstance(error, UnexpectedModelBehavior)
    )


def _rejection(model: str, error: ModelHTTPError) -> HarnessError:
    """Convert an error response. A provider may quote the key that it rejects, so that text is masked."""
    code, message, is_temporary = None, f"{model}: {error}", _is_temporary(error)
    if error.status_code in _UNAUTHORIZED:
        code, message, is_temporary = AUTH_ERROR, f"{model}: {without_keys(str(error))}", False
    elif error.status_code == _TOO_MANY:
        code = RATE_LIMITED
    details: dict[str, str | int] = {"model": model, "status": error.status_code}
    failure = HarnessError(message, code=code, recoverable=is_temporary, retry_after_seconds=error.retry_after or 0.0, tokens=0,
                           details=details if code is not None else None)  # fmt: skip
    if code == RATE_LIMITED and failure.retry_after_seconds:
        failure.details["retry_after_ms"] = round(failure.retry_after_seconds * 1000)
    return failure


def _is_temporary(error: ModelHTTPError) -> bool:
    """Whether the same request may succeed later, because the provider is busy or unavailable."""
    hint = error.provider_retry_hint
    return error.status_code in _TEMPORARY or error.status_code >= 500 if hint is None else hint
