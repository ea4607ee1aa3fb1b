"""Structured output by a real model: answers that satisfy a schema, and calls that satisfy their tools."""
