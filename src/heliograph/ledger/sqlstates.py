"""The SQLSTATEs that kernel functions raise, with their codes. `make docs` writes them to docs/reference/errors.md."""

from __future__ import annotations

from collections.abc import Mapping

TOO_LONG = "too_long"

# by SQLSTATE: the code of the KernelRejected, and the meaning
REJECTIONS: Mapping[str, tuple[str, str]] = {
    "22023": ("kernel_rejected", "an argument breaks a rule of the kernel; the message names it"),
    "22P02": ("wrong_type", "a string was given instead of a number or a boolean"),
    "22003": ("out_of_range", "a number is outside the range of its type"),
    "22008": ("out_of_range", "a time or a duration is outside the range of PostgreSQL"),
    "2201W": ("out_of_range", "a limit is negative"),
    "22021": ("invalid_text", "a string contains a character that PostgreSQL cannot store"),
    "22P05": ("invalid_text", "a string in JSON contains a character that PostgreSQL cannot store"),
    "23502": ("required_field", "a required field is missing"),
    "23503": ("kernel_rejected", "an object that the call names does not exist"),
    "23505": ("kernel_rejected", "an id is already used"),
    "23514": ("kernel_rejected", "a row would break a constraint of its table"),
    "54000": (TOO_LONG, "a value is too large for an index, a row or a result"),
    "54001": ("json_too_deep", "JSON is nested more deeply than PostgreSQL can parse"),
}
