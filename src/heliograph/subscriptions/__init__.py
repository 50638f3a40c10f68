"""Deliver the signals of durable subscriptions: to functions of an application, and to programs that iterate over them."""
