"""Logging: one line per request or state change, JSON or console, without secrets."""
