"""The SQLSTATEs that kernel functions raise, each with its code. docs/reference/errors.md has the same table."""

from __future__ import annotations

from collections.abc import Mapping

TOO_LONG = "too_long"

# by SQLSTATE: the code of the KernelRejected, and what it means
REFUSALS: Mapping[str, tuple[str, str]] = {
    "22023": ("kernel_rejected", "an argument breaks a rule of the kernel; the message names it"),
    "22P02": ("wrong_type", "a text stands where a number or a truth value belongs"),
    "22003": ("out_of_range", "a number is larger than its type holds"),
    "22008": ("out_of_range", "a time or a duration is longer than PostgreSQL holds"),
    "2201W": ("out_of_range", "a limit is below zero"),
    "22021": ("invalid_text", "a text holds a character that PostgreSQL does not store"),
    "22P05": ("invalid_text", "a text in JSON holds a character that PostgreSQL does not store"),
    "23502": ("required_field", "something that a row needs is missing"),
    "23503": ("kernel_rejected", "something that the call names does not exist"),
    "23505": ("kernel_rejected", "an id is taken"),
    "23514": ("kernel_rejected", "a row would break a rule of its table"),
    "54000": (TOO_LONG, "a value does not fit an index, a row or an answer"),
    "54001": ("json_too_deep", "JSON is nested deeper than PostgreSQL reads"),
}
