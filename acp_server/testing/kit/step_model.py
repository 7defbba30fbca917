"""What all steps of a scenario share: strict reading, and requests that may be expected to fail."""

from typing import TypeAlias

from pydantic import BaseModel, ConfigDict, StrictInt, StrictStr, model_validator
from pydantic.alias_generators import to_camel

SessionRef: TypeAlias = StrictInt | StrictStr
"""The n-th session that the scenario opened, from 1; a stored log of the scenario's directory
(`*.jsonl`), which is put into the store first; or any other text as a session id."""

EXPECT_ERROR = "ExpectError"


class StepModel(BaseModel):
    """A step, or a part of one; unknown members are errors."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=False
    )


class Refusable(StepModel):
    """A request that may be expected to fail."""

    op: str
    code: StrictInt | None = None

    @property
    def must_fail(self) -> bool:
        """Whether success fails the scenario."""
        return self.op.endswith(EXPECT_ERROR)

    @model_validator(mode="after")
    def _has_no_code_of_success(self) -> "Refusable":
        if self.code is not None and not self.must_fail:
            message = f"`code` belongs to {self.op}{EXPECT_ERROR}"
            raise ValueError(message)
        return self
