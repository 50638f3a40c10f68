"""Verify the webhooks that a runtime sends."""

from __future__ import annotations

from heliograph.policy.webhook_signature import verify_webhook

__all__ = ["verify_webhook"]
