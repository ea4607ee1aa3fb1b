"""The process that fetches models."""
