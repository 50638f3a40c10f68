"""The dashboard for Grafana: each expression names metrics and labels that exist."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from heliograph.telemetry import metrics_names
from heliograph.telemetry.metrics import Metric

NAME = re.compile(r"\b(?:signal|agent_lifecycle|gen_ai_client|heliograph)_[a-z_]+")
BRACES = re.compile(r"\{([^}]*)\}")
LABEL = re.compile(r"([a-z_]+)\s*(?:=~|!~|!=|=)\s*\"")
GROUPS = re.compile(r"\b(?:by|without)\s*\(([^)]*)\)")

# Labels that Prometheus itself adds.
ADDED = frozenset({"job", "instance", "le"})


def dashboard() -> Any:
    return json.loads(files("heliograph.telemetry").joinpath("dashboard.json").read_text(encoding="utf-8"))


def expressions() -> list[str]:
    return [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", [])]


def series(metric: Metric) -> list[str]:
    if metric.kind != "histogram":
        return [metric.text_name]
    return [f"{metric.text_name}_{part}" for part in ("bucket", "sum", "count")]


SERIES = {name: metric for metric in metrics_names.ALL for name in series(metric)}


def problems(expression: str) -> list[str]:
    names = NAME.findall(BRACES.sub("", GROUPS.sub("", expression)))
    unknown = [f"no metric {name}" for name in names if name not in SERIES]
    labels = {label for name in names if name in SERIES for label in SERIES[name].text_labels} | ADDED
    used = [label for braces in BRACES.findall(expression) for label in LABEL.findall(braces)]
    used += [label.strip() for group in GROUPS.findall(expression) for label in group.split(",")]
    return unknown + [f"no label {label}" for label in used if label not in labels] + ([] if names else ["no metric"])


def test_each_expression_names_metrics_and_labels_that_exist() -> None:
    assert len(expressions()) >= 12
    assert {expression: problems(expression) for expression in expressions() if problems(expression)} == {}


def test_counters_and_histograms_appear_as_rates() -> None:
    for expression in expressions():
        for name in NAME.findall(BRACES.sub("", GROUPS.sub("", expression))):
            if SERIES[name].kind != "gauge":
                assert re.search(rf"(rate|increase)\({name}", expression), expression


def test_each_metric_of_the_specification_has_a_panel() -> None:
    in_panels = {SERIES[name] for expression in expressions() for name in NAME.findall(expression) if name in SERIES}
    assert (
        set(metrics_names.SIGNALS)
        | set(metrics_names.LIFECYCLE)
        | set(metrics_names.MODELS)
        | set(metrics_names.DATABASE)
        <= in_panels
    )


def test_panels_have_titles_units_and_places_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    cells = [(x, y) for panel in panels for x, y in _cells(panel["gridPos"])]
    assert len(cells) == len(set(cells))


def test_wrong_expressions_are_found() -> None:
    assert problems("rate(signal_counts[5m])") == ["no metric signal_counts"]
    assert problems('sum by (run_id) (rate(signal_count{turn="x"}[5m]))') == ["no label turn", "no label run_id"]


def _cells(place: dict[str, int]) -> list[tuple[int, int]]:
    return [(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])]


def test_page_explains_every_metric_with_its_type_and_labels() -> None:
    page = (Path(__file__).parent.parent / "docs" / "how-to" / "metrics.md").read_text(encoding="utf-8")
    rows = {row[0].strip("` "): row[1:3] for line in page.splitlines() if len(row := line.split("|")[1:-1]) == 4}
    expected = {
        re.sub(r"lifecycle_[a-z]+_", "lifecycle_PHASE_", metric.text_name): [
            metric.kind,
            ", ".join(f"`{label}`" for label in metric.text_labels),
        ]
        for metric in metrics_names.ALL
    }
    written = {
        name: [cell.strip() for cell in cells]
        for name, cells in rows.items()
        if name != "Metric" and set(name) != {"-"}
    }
    assert written == expected
