"""All cases, in the order in which they run."""

from acp_server.testing.conformance.case import Case
from acp_server.testing.conformance.cases_basic import BASIC_CASES, LAST_CASES
from acp_server.testing.conformance.cases_frames import FRAME_CASES
from acp_server.testing.conformance.cases_permission import PERMISSION_CASES
from acp_server.testing.conformance.cases_prompt import PROMPT_CASES
from acp_server.testing.conformance.cases_session import SESSION_CASES

CASES: tuple[Case, ...] = (
    *BASIC_CASES,
    *PROMPT_CASES,
    *FRAME_CASES,
    *PERMISSION_CASES,
    *SESSION_CASES,
    *LAST_CASES,
)
