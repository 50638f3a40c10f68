"""Checks of the signal system: the form of signals, their causes, and which agents they activate."""

from __future__ import annotations

from datetime import datetime

from heliograph.signals.state_change import changed_value
from heliograph.testing.blackbox.check import Check
from heliograph.testing.blackbox.evidence import Evidence, Signal, agent_of, as_object, parent_of, payload_of


def _ids(run: Evidence) -> list[str]:
    return [str(each["id"]) for each in run.log]


def _is_unique(run: Evidence) -> bool:
    return 0 < len(run.log) == len(set(_ids(run))) and all(each.startswith("sig_") for each in _ids(run))


def _are_times(run: Evidence) -> bool:
    times = [datetime.fromisoformat(each["timestamp"].replace("Z", "+00:00")) for each in run.log]
    return bool(times) and all(each.tzinfo is not None for each in times)


def _has_earlier_parents(run: Evidence) -> bool:
    places = {identifier: place for place, identifier in enumerate(_ids(run))}
    return any(map(parent_of, run.log)) and all(
        parent is None or places.get(parent, len(run.log)) < place
        for place, parent in enumerate(map(parent_of, run.log))
    )


def _reaches_root(run: Evidence) -> bool:
    by_id = {each["id"]: each for each in run.log}

    def root(signal: Signal) -> Signal:
        for _ in run.log:
            if (parent := parent_of(signal)) is None:
                break
            signal = by_id[parent]
        return signal

    return len(run.log) > 1 and all(root(each)["name"] == "workflow:start" for each in run.log)


def _rebuilds_state(run: Evidence) -> bool:
    state = dict(payload_of(run.log[0])["state"])
    for each in run.named("state:*:changed"):
        key = each["name"].split(":")[1]
        state[key] = changed_value(state.get(key), payload_of(each))
    return state == as_object(payload_of(run.log[-1])["state"]) and state != run.scenario.state


def _cause_of(run: Evidence, agent: str) -> str | None:
    """The name of the signal that activated an agent, if it was activated once."""
    [activated] = run.named("agent:activated", agent)
    return next((each["name"] for each in run.log if each["id"] == parent_of(activated)), None)


def _activates_none(run: Evidence, agent: str) -> bool:
    return bool(run.log) and not run.named("agent:activated", agent)


def _is_skipped(run: Evidence) -> bool:
    [skipped] = run.named("agent:skipped", "censor")
    return bool(payload_of(skipped)["reason"]) and _activates_none(run, "censor")


def _has_fields(run: Evidence, name: str, *fields: str) -> bool:
    found = run.named(name)
    return bool(found) and all(set(fields) <= set(payload_of(each)) for each in found)


def _is_in_order(run: Evidence) -> bool:
    places = [run.place("workflow:start"), run.place("agent:activated", "writer"), run.place("agent:completed", "writer"),
              run.place("draft:ready"), run.place("agent:activated", "critic"), run.place("workflow:end")]  # fmt: skip
    return places[0] == 0 and places == sorted(places) and places[-1] == len(run.log) - 1


def _names_its_agents(run: Evidence) -> bool:
    return all(as_object(each.get("source")).get("agent") for each in run.named("agent:*")) and bool(
        run.named("agent:*")
    )


SIGNALS = (
    Check("SIG-01", "chain", "agents are activated by signals only", lambda run: bool(run.named("agent:activated")) and all(map(parent_of, run.named("agent:activated")))),
    Check("SIG-02", "chain", "the changes of state in the log give the final state", _rebuilds_state),
    Check("SIG-03", "calls", "the log has both tool calls and their results, in order",
          lambda run: [payload_of(each)["name"] for each in run.named("tool:*")] == ["weather", "weather", "printer", "printer"]),
    Check("SIG-10", "chain", "ids are unique and begin with sig_", _is_unique),
    Check("SIG-11", "chain", "each signal has a name", lambda run: bool(run.log) and all(isinstance(each["name"], str) and each["name"] for each in run.log)),
    Check("SIG-12", "chain", "each signal has a payload", lambda run: bool(run.log) and all("payload" in each for each in run.log)),
    Check("SIG-13", "chain", "timestamps are ISO 8601 with an offset", _are_times),
    Check("SIG-14", "chain", "the first signal needs no source", lambda run: not parent_of(run.log[0])),
    Check("SIG-15", "chain", "signals of agents name their agent", _names_its_agents),
    Check("SIG-16", "chain", "a parent is an earlier signal of the log", _has_earlier_parents),
    Check("SIG-20", "chain", "the log begins with workflow:start and the state",
          lambda run: (run.log[0]["name"], payload_of(run.log[0])["state"]) == ("workflow:start", run.scenario.state)),
    Check("SIG-21", "chain", "the log ends with workflow:end, the state and metrics",
          lambda run: run.log[-1]["name"] == "workflow:end" and _has_fields(run, "workflow:end", "state", "metrics")),
    Check("SIG-22", "chain", "agent:activated names its agent", lambda run: _has_fields(run, "agent:activated", "agent")),
    Check("SIG-23", "chain", "agent:skipped names its agent and a reason", lambda run: _has_fields(run, "agent:skipped", "agent", "reason")),
    Check("SIG-24", "chain", "agent:completed has the agent and its output",
          lambda run: _has_fields(run, "agent:completed", "agent", "output")
          and payload_of(run.named("agent:completed", "writer")[0])["output"] == "three short words"),
    Check("SIG-32", "chain", "tool:call has a name and an input", lambda run: _has_fields(run, "tool:call", "name", "input")),
    Check("SIG-33", "chain", "tool:result has a name and the output",
          lambda run: [payload_of(each)["output"] for each in run.named("tool:result")] == [{"words": 3}]),
    Check("SIG-34", "chain", "state:draft:changed has the value",
          lambda run: [payload_of(each)["value"] for each in run.named("state:draft:changed")] == ["three short words"]),
    Check("SIG-35", "chain", "an agent emits the signal that it declares", lambda run: [agent_of(each) for each in run.named("draft:ready")] == ["writer"]),
    Check("SIG-40", "chain", "any name of activate_on activates", lambda run: _cause_of(run, "critic") == "draft:ready"),
    Check("SIG-41", "chain", "workflow:start activates", lambda run: _cause_of(run, "writer") == "workflow:start"),
    Check("SIG-42", "chain", "signals of agents activate, and other names do not",
          lambda run: bool(_cause_of(run, "critic")) and _activates_none(run, "bystander")),
    Check("SIG-44", "chain", "a change of state activates", lambda run: _cause_of(run, "printer") == "state:verdict:changed"),
    Check("SIG-45", "chain", "a false guard skips the agent", _is_skipped),
    Check("SIG-50", "chain", "draft:* matches one segment", lambda run: _cause_of(run, "one-segment") == "draft:ready"),
    Check("SIG-51", "chain", "verdict:** matches further segments", lambda run: _cause_of(run, "many-segments") == "verdict:ready"),
    Check("SIG-52", "chain", "*:ready matches any first segment",
          lambda run: len(run.named("agent:activated", "leading")) == 2),
    Check("SIG-60", "chain", "an activation names the signal that caused it", lambda run: _cause_of(run, "critic") == "draft:ready"),
    Check("SIG-61", "chain", "each chain of causes ends at workflow:start", _reaches_root),
    Check("SIG-62", "chain", "the log of a run is complete, from its start to its end",
          lambda run: len(run.named("workflow:start")) == len(run.named("workflow:end")) == 1 and run.has_ended),
    Check("SIG-63", "chain", "start, activation, completion, signal, next activation and end are in order", _is_in_order),
)  # fmt: skip
