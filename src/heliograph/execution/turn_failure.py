"""The code and the message of a turn that failed."""

from __future__ import annotations

import logging

from heliograph.codes import ACTION_FAILED, UNDECODABLE
from heliograph.errors import AgentFailed, KernelRejected
from heliograph.execution.phase_run import failure_code
from heliograph.turn.phase_signals import Turn

log = logging.getLogger("heliograph.execution")


def code_of(error: AgentFailed | KernelRejected, turn: Turn) -> str:
    """The code of the error, if the agent chose one; else that of the phase."""
    if error.code.isupper() and error.code != ACTION_FAILED:
        return error.code
    return ACTION_FAILED if turn.rounds is None else failure_code(turn.phase)


def message_of(turn_id: str, error: AgentFailed | KernelRejected) -> str:
    """The error message of the turn. Rejections by the store name constraints and tables, so only the log has them (S20)."""
    if isinstance(error, AgentFailed) or error.code == UNDECODABLE:
        return error.message
    log.error("%s: %s", turn_id, error.message)
    return "the store rejected a write of this turn; the worker's log has the reason"
