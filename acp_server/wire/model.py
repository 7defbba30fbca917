"""The base of all models and the one way to parse with them.

Reading rules (ACP v1 schema, `x-deserialize-*`): unknown keys and `_meta` are tolerated
everywhere, `null` reads as absent, and what the schema marks "default on error" falls back to its
default instead of failing the message. Everything else is strict: nothing is coerced.
"""

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    StrictInt,
    StrictStr,
    ValidationError,
    WrapValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from acp_server.wire.errors import WireError

ModelT = TypeVar("ModelT", bound=BaseModel)


class WireModel(BaseModel):
    """A frozen model whose fields go by their camelCase names on the wire."""

    model_config = ConfigDict(frozen=True, extra="ignore", alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _read_null_as_absent(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: item for key, item in value.items() if item is not None}
        return value


def _none_on_error(value: object, handler: Callable[[object], Any]) -> Any:
    try:
        return handler(value)
    except ValidationError:
        return None


def _skip_invalid_items(value: object, handler: Callable[[object], Any]) -> Any:
    if not isinstance(value, list):
        return handler(value)
    kept: list[object] = []
    for item in value:
        try:
            kept.extend(handler([item]))
        except ValidationError:
            continue
    return tuple(kept)


def _check_absolute(path: str) -> str:
    r"""Refuse what is not an absolute POSIX path (ACP v1 session-setup).

    `~`, `C:\x` and `\\?\C:\x` are relative names on POSIX and would make an oddly named folder.
    """
    if not path.startswith("/"):
        raise ValueError(f"must be an absolute path, not {path[:200]!r}")
    if "\0" in path:
        raise ValueError("must not contain a NUL character")
    return path


# "x-deserialize-default-on-error" and "x-deserialize-skip-invalid-items" of the schema.
NONE_ON_ERROR = WrapValidator(_none_on_error)
SKIP_INVALID = WrapValidator(_skip_invalid_items)

AbsolutePath = Annotated[StrictStr, AfterValidator(_check_absolute)]
LenientStr = Annotated[StrictStr | None, NONE_ON_ERROR]
LenientInt = Annotated[StrictInt | None, NONE_ON_ERROR]
LenientObject = Annotated[dict[str, Any] | None, NONE_ON_ERROR]

# What pydantic's error types say, in the words of JSON.
_REASONS = {
    "missing": "is missing",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "tuple_type": "must be an array",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}


def parse(model: type[ModelT], params: object) -> ModelT:
    """Read `params` (None reads as an empty object) as `model`.

    Raises:
        WireError: If it does not fit; the detail names the first offending field.
    """
    if params is not None and not isinstance(params, dict):
        raise WireError("params must be an object")
    try:
        return model.model_validate(params or {})
    except ValidationError as error:
        raise WireError(_detail(error)) from error


def _detail(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "value_error":
        reason = str(first["ctx"]["error"])
    else:
        reason = _REASONS.get(first["type"], "is not valid")
    path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    return f"`{path.lstrip('.')}` {reason}"
