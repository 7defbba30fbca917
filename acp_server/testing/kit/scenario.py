"""A scenario: a directory that says what a client does and what an agent must show and store.

`scenario.json` is the script, everything else in the directory is what it names. Reading it checks
it whole; what is wrong is named by file and line.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic import (
    BaseModel,
    ConfigDict,
    StrictBool,
    StrictInt,
    StrictStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from acp_server.testing.client.client_results import check_permission_kind
from acp_server.testing.kit.json_places import JsonFault, line_of, read_with_places
from acp_server.testing.kit.step_model import StepModel
from acp_server.testing.kit.steps import Step, Stop

SCENARIO_FILE = "scenario.json"
WORKSPACE = "workspace"
MODEL_FILES = ("model.json", "model.jsonl")
OVERRIDE_FILE = "model.override.json"
HEADER_FILE = "header.expected.json"

TransportKind: TypeAlias = Literal["subprocess", "memory"]
CheckName: TypeAlias = Literal["fold", "damage", "balance", "unknown-tools", "model-rest"]


class PermissionAnswer(StepModel):
    """The answer to one permission request: by kind, by an option id, or none at all."""

    kind: StrictStr | None = None
    option_id: StrictStr | None = None
    never: StrictBool = False

    @field_validator("kind")
    @classmethod
    def _is_known(cls, kind: str | None) -> str | None:
        return None if kind is None else check_permission_kind(kind)

    @model_validator(mode="after")
    def _has_exactly_one(self) -> "PermissionAnswer":
        if (self.kind is not None) + (self.option_id is not None) + self.never != 1:
            message = "a permission answer has one of `kind`, `optionId` and `never`"
            raise ValueError(message)
        return self


class GivenLog(StepModel):
    """A stored log that is in the store from the start, or several copies of it."""

    log: StrictStr
    copies: StrictInt = 1


class Scenario(BaseModel):
    """What stands in `scenario.json`.

    Attributes:
        kit: Tells pytest that the directories here are scenarios of this kit; see `acp_scenarios`.
        about: One sentence: what the scenario pins.
        agent: `script` plays the model file beside it; `FILE.py:NAME` is an agent of the
            directory; anything else is what `--agent` takes.
        steps: What the client does.
        permission_answers: Answers to permission requests, first in first out; `cancelled` when
            there are none left. A text stands for a kind.
        elicitation_answers: Results of elicitation requests, likewise; `cancel` at the end.
        answers: Results of further requests of the agent by method, likewise.
        stores: Kinds of stores that the scenario is for; all by default.
        transports: Ways to reach the server; both by default, only a subprocess can be killed.
        given: Stored logs that are put into the store before the first step.
        log: What of the stored logs is compared: their `events`; the records as `stored`, packed
            rows not expanded; or `nothing`.
        by_session: Sessions run at the same time: frames are compared session by session.
        recorded: The agent that `--acp-record` runs, whose log becomes `model.jsonl`.
        overridden: `model.override.json` replaces entries of the recorded script.
        header_class: Scenarios of one class share the system prompt and the tools.
        pins_header: `header.expected.json` of this scenario holds those of its class.
        without: Checks that do not apply here, each with the reason.
    """

    model_config = ConfigDict(
        frozen=True, extra="forbid", alias_generator=to_camel, validate_by_name=False
    )

    kit: Literal["acp"] = "acp"
    about: StrictStr
    agent: StrictStr = "script"
    steps: tuple[Step, ...]
    permission_answers: tuple[PermissionAnswer, ...] = ()
    elicitation_answers: tuple[dict[str, Any], ...] = ()
    answers: dict[str, tuple[dict[str, Any], ...]] = {}
    stores: tuple[StrictStr, ...] | None = None
    transports: tuple[TransportKind, ...] | None = None
    log: Literal["events", "stored", "nothing"] = "events"
    by_session: StrictBool = False
    given: tuple[GivenLog, ...] = ()
    recorded: StrictStr | None = None
    overridden: StrictBool = False
    header_class: StrictStr = "default"
    pins_header: StrictBool = False
    without: dict[CheckName, StrictStr] = {}

    @field_validator("permission_answers", mode="before")
    @classmethod
    def _read_kinds(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"kind": item} if isinstance(item, str) else item for item in value]

    @field_validator("given", mode="before")
    @classmethod
    def _read_names(cls, value: object) -> object:
        if not isinstance(value, list):
            return value
        return [{"log": item} if isinstance(item, str) else item for item in value]

    @property
    def needs_process(self) -> bool:
        """Whether a step sends a signal, which only a process can take."""
        return any(isinstance(step, Stop) and step.op != "closeInput" for step in self.steps)

    def runs_over(self, transport: TransportKind, store: str) -> bool:
        """Say whether the scenario runs over this transport and kind of store."""
        if self.stores is not None and store not in self.stores:
            return False
        if transport == "memory" and self.needs_process:
            return False
        if transport == "subprocess" and store == "memory":
            return False  # its store would be gone with the process
        return self.transports is None or transport in self.transports


class ScenarioFault(Exception):  # noqa: N818 - a fault of the directory, not of the agent
    """A scenario that cannot be run as it is written.

    Attributes:
        path: The file.
        line: 1-based line, 0 if the fault is about the whole file.
        reason: What is wrong.
    """

    def __init__(self, path: Path, line: int, reason: str) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(f"{place}: {reason}")
        self.path = path
        self.line = line
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ScenarioDirectory:
    """A scenario and where it stands."""

    path: Path
    scenario: Scenario

    @property
    def name(self) -> str:
        """The behaviour that it pins."""
        return self.path.name

    @property
    def model_file(self) -> Path | None:
        """The model script that the scenario plays, if it does."""
        spec = self.scenario.agent
        if spec.startswith("script:"):
            return self.path / spec.removeprefix("script:")
        if spec != "script":
            return None
        return next((self.path / name for name in MODEL_FILES if (self.path / name).exists()), None)

    def agent_spec(self, spec: str | None = None) -> str:
        """Return an agent as `--agent` takes it, files by absolute paths.

        Raises:
            ScenarioFault: A file that it names is not there.
        """
        spec = self.scenario.agent if spec is None else spec
        if spec == "script":
            if self.model_file is None:
                reason = f"the agent is `script`, and there is no {' or '.join(MODEL_FILES)}"
                raise ScenarioFault(self.path / SCENARIO_FILE, 0, reason)
            return f"script:{self.model_file}"
        if spec.startswith("script:"):
            return f"script:{self._file(spec.removeprefix('script:'))}"
        file, colon, name = spec.rpartition(":")
        return f"{self._file(file)}:{name}" if colon and file.endswith(".py") else spec

    def _file(self, name: str) -> Path:
        path = (self.path / name).resolve()
        if not path.is_file():
            raise ScenarioFault(
                self.path / SCENARIO_FILE, 0, f"it names {name!r}, which is not there"
            )
        return path


def load_scenario(directory: Path) -> ScenarioDirectory:
    """Read and check a scenario's directory.

    Raises:
        ScenarioFault: It is none; file, line and reason say what is wrong.
    """
    path = directory / SCENARIO_FILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ScenarioFault(path, 0, f"cannot be read: {error}") from error
    try:
        value, lines = read_with_places(text)
        scenario = Scenario.model_validate(value)
    except JsonFault as error:
        raise ScenarioFault(path, error.line, error.reason) from error
    except ValidationError as error:
        place, reason = _first_fault(error)
        raise ScenarioFault(path, line_of(lines, place), reason) from error
    found = ScenarioDirectory(directory, scenario)
    if scenario.recorded is None or found.model_file is not None:
        found.agent_spec()
    return found


def _first_fault(error: ValidationError) -> tuple[tuple[str | int, ...], str]:
    """Return where the first fault is and what it is, in the words of the file."""
    first = error.errors(include_url=False)[0]
    # Behind the position of a step pydantic names the kind of step that it tried.
    place = first["loc"]
    if place[:1] == ("steps",) and len(place) > 2:
        place = (*place[:2], *place[3:])
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
    match first["type"]:
        case "union_tag_invalid":
            reason = f"there is no op {first['ctx']['tag']!r}"
        case "union_tag_not_found":
            reason = "a step needs an `op`"
        case "extra_forbidden":
            reason = "there is no such member"
        case "missing":
            reason = "is missing"
        case _:
            reason = str(first["msg"]).removeprefix("Value error, ")
    return place, f"{where.lstrip('.')}: {reason}" if where else reason
