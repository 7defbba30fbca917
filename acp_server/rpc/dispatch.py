"""Find a request's handler and call it, through jsonrpcserver. The one module that imports it.

Importing jsonrpcserver costs more than all else that `initialize` needs, so nothing may import
this module before that is answered (initialize-is-answered-alone). Only the library's inner
dispatcher is used: parsing and envelopes are ours, since its own accept too much and say too much.
"""

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Final

from jsonrpcserver.async_dispatcher import dispatch_request  # noqa: TID251 - the one place
from jsonrpcserver.codes import ERROR_METHOD_NOT_FOUND  # noqa: TID251 - the one place
from jsonrpcserver.request import Request as LibraryRequest  # noqa: TID251 - the one place
from jsonrpcserver.result import Error, ErrorResult, Result, Success  # noqa: TID251 - the one place
from jsonrpcserver.sentinels import NODATA  # noqa: TID251 - the one place
from oslash.either import Left

from acp_server.rpc.errors import RpcError
from acp_server.rpc.failures import FailureLog
from acp_server.rpc.table import Handler, MethodTable, Params, RequestContext

LibraryMethod = Callable[[RequestContext, Params], Awaitable[Result]]

_SIGNATURE: Final = inspect.signature(lambda context, params: None)


class Dispatcher:
    """Calls the handlers of one method table.

    Args:
        table: The connection's methods.
        failures: Where unexpected exceptions of handlers are recorded.
    """

    def __init__(self, table: MethodTable, failures: FailureLog) -> None:
        self._methods = {
            name: _library_method(handler, failures) for name, handler in table.requests.items()
        }

    async def dispatch(self, context: RequestContext, params: Params) -> dict[str, Any]:
        """Call the handler of `context.method` and return its result.

        The handler's code up to its first await runs before this call awaits anything.

        Raises:
            RpcError: What the client is to be told; nothing else but cancellation and
                `BaseException`s of the handler.
        """
        # One positional argument: the library would spread an object over keyword arguments, and
        # an unknown key of a newer client would be refused.
        request = LibraryRequest(context.method, [params], context.id)
        _, outcome = await dispatch_request(self._methods, context, request)
        if isinstance(outcome, Left):
            raise _rpc_error_from_result(outcome._error, context.method, self._methods)  # noqa: SLF001 - its only access
        result: dict[str, Any] = outcome._value.result  # noqa: SLF001 - its only access
        return result


def _library_method(handler: Handler, failures: FailureLog) -> LibraryMethod:
    async def call(context: RequestContext, params: Params) -> Result:
        try:
            result = await handler(context, params)
        except RpcError as error:
            return Error(error.code, error.message, NODATA if error.data is None else error.data)
        except Exception as error:  # noqa: BLE001 - the boundary; the library's own would tell its text
            refusal = failures.record(f"request {context.method!r}", error)
            return Error(refusal.code, refusal.message, refusal.data)
        return Success({} if result is None else result)

    # The library asks for the signature at each call; found here, it need not be worked out.
    call.__signature__ = _SIGNATURE  # type: ignore[attr-defined]
    return call


def _rpc_error_from_result(
    error: ErrorResult, method: str, methods: dict[str, LibraryMethod]
) -> RpcError:
    if error.code == ERROR_METHOD_NOT_FOUND and method not in methods:
        return RpcError.method_not_found(method)
    return RpcError(error.code, error.message, None if error.data is NODATA else error.data)
