"""The names of spans and attributes: those of OpenTelemetry's conventions for GenAI (1.41), and our own under `heliograph.`.

All names of the conventions for GenAI are still in development, so they are in this module only. Names that have changed within the
last year are only emitted if OTEL_SEMCONV_STABILITY_OPT_IN has `gen_ai_latest_experimental`.
"""

from __future__ import annotations

OPERATION = "gen_ai.operation.name"
INVOKE_AGENT, CHAT, EXECUTE_TOOL = "invoke_agent", "chat", "execute_tool"
PROVIDER = "gen_ai.provider.name"
AGENT_NAME = "gen_ai.agent.name"
AGENT_ID = "gen_ai.agent.id"
CONVERSATION = "gen_ai.conversation.id"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
FINISH_REASONS = "gen_ai.response.finish_reasons"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
TOOL_NAME = "gen_ai.tool.name"
TOOL_TYPE = "gen_ai.tool.type"
TOOL_CALL_ID = "gen_ai.tool.call.id"
ERROR_TYPE = "error.type"
OTHER_ERROR = "_OTHER"  # the convention for an error without a code

# With OTEL_SEMCONV_STABILITY_OPT_IN only.
INVOKE_WORKFLOW = "invoke_workflow"
WORKFLOW_NAME = "gen_ai.workflow.name"

# With OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT only.
INPUT_MESSAGES = "gen_ai.input.messages"
OUTPUT_MESSAGES = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS = "gen_ai.system_instructions"
TOOL_ARGUMENTS = "gen_ai.tool.call.arguments"
TOOL_RESULT = "gen_ai.tool.call.result"

# The conventions have no names for these.
COST_USD = "heliograph.usage.cost_usd"
PROJECT = "heliograph.project"
APPLICATION = "heliograph.application"
TURN_ID = "heliograph.turn.id"
EPOCH = "heliograph.turn.epoch"
ATTEMPTS = "heliograph.turn.recoveries"
OUTCOME = "heliograph.outcome"
CALL_KIND = "heliograph.call.kind"
CALLBACK_ID = "heliograph.callback.id"
ATTEMPT = "heliograph.attempt"

# Of requests over HTTP.
METHOD = "http.request.method"
STATUS = "http.response.status_code"
SERVER = "server.address"

_PROVIDERS = {
    "openai": "openai", "openai-chat": "openai", "openai-responses": "openai", "anthropic": "anthropic", "google-gla": "gcp.gemini",
    "google-vertex": "gcp.vertex_ai", "bedrock": "aws.bedrock", "azure": "azure.ai.openai", "groq": "groq", "mistral": "mistral_ai",
    "deepseek": "deepseek", "cohere": "cohere", "xai": "x_ai", "grok": "x_ai",
}  # fmt: skip
_FAMILIES = {"gpt-": "openai", "o1": "openai", "o3": "openai", "o4": "openai", "claude": "anthropic", "gemini": "gcp.gemini",
             "mistral": "mistral_ai", "deepseek": "deepseek", "command": "cohere", "grok": "x_ai"}  # fmt: skip


def provider_of(model: str) -> str:
    """Return the provider of a model, by its prefix or by its family; a model of neither is the application's own."""
    prefix, found, _ = model.partition(":")
    if found:
        return _PROVIDERS.get(prefix, prefix)
    return next((provider for family, provider in _FAMILIES.items() if model.startswith(family)), "heliograph")
