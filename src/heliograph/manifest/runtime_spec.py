"""`kind: RuntimeSpec`: the limits of phases, the settings of control signals, and the telemetry of a deployment."""

# Requirements: CTL-70 to CTL-74, CTL-94, OBS-04 to OBS-08, G-28, G-32.
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.control.expressions import evaluate
from heliograph.control.lifecycle_settings import LifecycleSettings, read_lifecycle
from heliograph.control.observability import METRICS, Observability, read_observability
from heliograph.control.settings import ControlSettings, ErrorSettings, read_settings
from heliograph.definitions.effective_settings import OF_APPLICATIONS, without_effect
from heliograph.definitions.signal_settings import ApplicationSettings, read_application_settings
from heliograph.errors import InvalidInput
from heliograph.manifest.document import Document
from heliograph.manifest.problems import ManifestProblem, accepted
from heliograph.manifest.retry_settings import unknown_codes
from heliograph.manifest.sections import (
    has_errors,
    is_payload_of_signal,
    misplaced_expressions,
    problems_of_schema,
    read_section,
)

KIND = "RuntimeSpec"
API_VERSION = "ossa/v0.4.9"
SECTIONS = ("lifecycle", "control_signals", "observability")

_SIGNALS = "/control_signals"
_EFFECTIVE = {**OF_APPLICATIONS, "error": ("payload",)}
_POLICY = ("error_code", "recoverable", "retry_count")


@dataclass(frozen=True, slots=True)
class RuntimeSpec:
    """A runtime specification that was read. A section that the manifest does not have is None, or empty.

    control_signals: the settings with an effect in an application. error_retries, error_recoverable: the policy for errors, by code.
    document: the places of all values. warnings: the settings without an effect.
    """

    document: Document
    lifecycle: LifecycleSettings | None = None
    control_signals: Mapping[str, Any] = field(default_factory=dict)
    error_retries: Mapping[str, int] = field(default_factory=dict)
    error_recoverable: Mapping[str, bool] = field(default_factory=dict)
    observability: Observability | None = None
    warnings: tuple[ManifestProblem, ...] = ()


def is_fragment(document: Document) -> bool:
    """Whether a document has sections of a runtime specification, but neither version nor kind, like the examples of the specification."""
    value = document.value
    return isinstance(value, dict) and bool(value) and set(value) <= {*SECTIONS, "metadata"}


def read_runtime_spec(document: Document) -> RuntimeSpec:
    """Read a runtime specification. Raises ManifestRejected with all problems."""
    found = list(document.problems)
    if is_fragment(document):
        found.append(document.problem("header_missing", f"the manifest has neither apiVersion nor kind, and is read as a {KIND} of "
                                      f"{API_VERSION}", "", f"begin with apiVersion: {API_VERSION} and kind: {KIND}", is_warning=True))  # fmt: skip
        document = replace(document, value={"apiVersion": API_VERSION, "kind": KIND, **document.value})
    found += problems_of_schema(document, KIND)
    if document.is_readable:
        found += misplaced_expressions(document, is_payload_of_signal)
    lifecycle = read_section(document, "/lifecycle", read_lifecycle, found)
    signals = _read_signals(document, found)
    observability = read_section(document, "/observability", read_observability, found)
    error = read_section(document, f"{_SIGNALS}/error", _read_error, found)
    if observability is not None:
        found += [*_warn_of_metrics(document, observability), *_warn_of_tracing(document)]
    warnings = accepted(found)
    return RuntimeSpec(document, lifecycle, signals, error.retries if error else {}, error.recoverable if error else {},
                       observability, tuple(warnings))  # fmt: skip


def _read_error(value: Any, path: str) -> ErrorSettings:
    """Read the policy for errors. Raises InvalidInput for one without a code."""
    error = read_settings({"error": value}, path.rpartition("/")[0]).error
    _ = error.retries, error.recoverable
    return error


def _read_signals(document: Document, found: list[ManifestProblem]) -> dict[str, Any]:
    """Return the settings of control signals that have an effect in an application; add the problems of all to `found`."""
    given = document.value_at(_SIGNALS) if document.is_readable else None
    if not isinstance(given, dict):
        return {}
    for kind in given:
        path = f"{_SIGNALS}/{kind}"
        settings = read_section(document, path, _read_type, found)
        if settings is None:
            continue
        found.extend(
            document.problem_of(error, is_warning=not is_contradiction)
            for error, is_contradiction in without_effect({kind: given[kind]}, settings, _SIGNALS, _EFFECTIVE)
        )
        _check_template(document, f"{path}/payload", found)
        if kind == "error":
            found.extend(_warn_of_policy(document, f"{path}/payload"))
        elif not has_errors(found, path):
            read_section(document, path, _check_type, found)
            found.extend(_warn_of_codes(document, f"{path}/retry/retryable_errors"))
    return _effective(given)


def _read_type(value: Any, path: str) -> ControlSettings:
    """Read the settings of one type of control signal. Raises InvalidInput."""
    return read_settings({path.rpartition("/")[2]: value}, _SIGNALS)


def _check_type(value: Any, path: str) -> ApplicationSettings:
    """Read the settings of one type as those of an application. Raises InvalidInput for a value out of range."""
    return read_application_settings(_effective({path.rpartition("/")[2]: value}))


def _effective(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that have an effect in an application."""
    kept = {
        kind: {key: value for key, value in settings.items() if key in OF_APPLICATIONS.get(kind, ())}
        for kind, settings in given.items()
        if isinstance(settings, dict)
    }
    return {kind: settings for kind, settings in kept.items() if settings}


def _check_template(document: Document, pointer: str, found: list[ManifestProblem]) -> None:
    """Add a problem for an expression of a payload that does not exist."""
    value = document.value_at(pointer)
    if value is not None:
        try:
            evaluate(value, lambda: "id", None, pointer)
        except InvalidInput as error:
            found.append(document.problem_of(error))


def _warn_of_policy(document: Document, pointer: str) -> list[ManifestProblem]:
    """Return a warning for each field of a policy for errors that has no effect."""
    policy = document.value_at(pointer)
    return [
        document.problem("no_effect", f"'{key}' of a policy for errors has no effect, because each error has its own", f"{pointer}/{key}",
                         "remove it", is_warning=True)
        for key in (policy if isinstance(policy, dict) else ()) if key not in _POLICY
    ]  # fmt: skip


def _warn_of_codes(document: Document, place: str) -> list[ManifestProblem]:
    """Return a warning for each code of a retry policy that Heliograph does not have."""
    codes = document.value_at(place)
    return [
        document.problem("unknown_error_code", message, f"{place}/{n}", hint, is_warning=True)
        for n, message, hint in unknown_codes(codes if isinstance(codes, list) else ())
    ]


def _warn_of_metrics(document: Document, observability: Observability) -> list[ManifestProblem]:
    """Return a warning for metrics that are not listed, and for each metric with fewer labels than it is published with."""
    place = "/observability/signals/metrics"
    found = [
        document.problem("no_effect", f"{metric.name} is always published with its labels {', '.join(METRICS[metric.name][1])}",
                         f"{place}/{n}/labels", "list all of them, or remove `labels`", is_warning=True)
        for n, metric in enumerate(observability.signals.metrics)
        if metric.labels and set(metric.labels) != set(METRICS[metric.name][1])
    ]  # fmt: skip
    listed = {metric.name for metric in observability.signals.metrics}
    if document.value_at(place) is not None and (others := [each for each in METRICS if each not in listed]):
        found.append(document.problem("no_effect", f"the list selects nothing: {', '.join(others)} {'is' if len(others) == 1 else 'are'} "
                                      "published too", place, "list all metrics, or remove the list", at_key=True, is_warning=True))  # fmt: skip
    return found


def _warn_of_tracing(document: Document) -> list[ManifestProblem]:
    """Return a warning for each setting of tracing if nothing switches it on."""
    place = "/observability/tracing"
    given = document.value_at(place)
    if not isinstance(given, dict) or "enabled" in given:
        return []
    return [
        document.problem("no_effect", f"'{key}' has no effect, because tracing is not enabled", f"{place}/{key}",
                         "write enabled: true", at_key=True, is_warning=True)
        for key in given
    ]  # fmt: skip
