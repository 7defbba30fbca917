"""Content blocks that a client sends: text, image, audio, resource link, embedded resource."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import BeforeValidator, Field, StrictFloat, StrictInt, StrictStr

from acp_server.wire.errors import WireError
from acp_server.wire.model import (
    NONE_ON_ERROR,
    SKIP_INVALID,
    LenientInt,
    LenientObject,
    LenientStr,
    WireModel,
)
from acp_server.wire.shapes import JsonObject


class Annotations(WireModel):
    """Hints on who a block is for; every member falls away when it is malformed."""

    audience: Annotated[
        tuple[Literal["user", "assistant"], ...] | None, SKIP_INVALID, NONE_ON_ERROR
    ] = None
    last_modified: LenientStr = None
    priority: Annotated[StrictInt | StrictFloat | None, NONE_ON_ERROR] = None
    meta: LenientObject = Field(default=None, alias="_meta")


class _Block(WireModel):
    annotations: Annotated[Annotations | None, NONE_ON_ERROR] = None
    meta: LenientObject = Field(default=None, alias="_meta")

    def to_json(self) -> JsonObject:
        """Return the block in its ACP form, with the members of ACP v1 only and without nulls."""
        dump = self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
        return {"type": dump.pop("type"), **dump}


class TextBlock(_Block):
    """Plain text or Markdown."""

    type: Literal["text"]
    text: StrictStr


class ImageBlock(_Block):
    """An image, base64."""

    type: Literal["image"]
    data: StrictStr
    mime_type: StrictStr
    uri: LenientStr = None


class AudioBlock(_Block):
    """Sound, base64."""

    type: Literal["audio"]
    data: StrictStr
    mime_type: StrictStr


class ResourceLinkBlock(_Block):
    """A link to something the agent may read by itself."""

    type: Literal["resource_link"]
    uri: StrictStr
    name: StrictStr
    mime_type: LenientStr = None
    title: LenientStr = None
    description: LenientStr = None
    size: LenientInt = None


class TextResource(WireModel):
    """The text of an embedded resource."""

    uri: StrictStr
    text: StrictStr
    mime_type: LenientStr = None
    meta: LenientObject = Field(default=None, alias="_meta")


class BlobResource(WireModel):
    """The bytes of an embedded resource, base64."""

    uri: StrictStr
    blob: StrictStr
    mime_type: LenientStr = None
    meta: LenientObject = Field(default=None, alias="_meta")


def _read_resource(value: object) -> TextResource | BlobResource:
    if isinstance(value, dict) and "blob" in value and "text" not in value:
        return BlobResource.model_validate(value)
    return TextResource.model_validate(value)


class ResourceBlock(_Block):
    """A resource whose content is sent along."""

    type: Literal["resource"]
    resource: Annotated[TextResource | BlobResource, BeforeValidator(_read_resource)]


Block: TypeAlias = TextBlock | ImageBlock | AudioBlock | ResourceLinkBlock | ResourceBlock


_BLOCK_TYPES: Mapping[str, type[Block]] = MappingProxyType(
    {
        "text": TextBlock,
        "image": ImageBlock,
        "audio": AudioBlock,
        "resource_link": ResourceLinkBlock,
        "resource": ResourceBlock,
    }
)


def _read_block(value: object) -> Block:
    if not isinstance(value, dict):
        msg = "must be an object"
        raise ValueError(msg)  # noqa: TRY004 - pydantic turns only ValueError into its own error
    name = value.get("type")
    model = _BLOCK_TYPES.get(name) if isinstance(name, str) else None
    if model is None:
        msg = f"has the unknown block type {str(name)[:40]!r}" if name else "has no block type"
        raise ValueError(msg)
    return model.model_validate(value)


def read_block(value: object) -> Block:
    """Read one block, from wherever it comes.

    Raises:
        WireError: It is none of ACP v1.
    """
    try:
        return _read_block(value)
    except ValueError as error:
        raise WireError(str(error)) from error


ContentBlock = Annotated[Block, BeforeValidator(_read_block)]
