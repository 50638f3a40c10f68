"""Verify the webhooks that a runtime sends, and sign messages as it does."""

from __future__ import annotations

from heliograph.policy.webhook_signature import sign_webhook, verify_webhook

__all__ = ["sign_webhook", "verify_webhook"]
