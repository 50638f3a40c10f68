"""Adapters: send the signals of subscriptions elsewhere, to functions, webhooks, files, logs, metrics and terminals."""
