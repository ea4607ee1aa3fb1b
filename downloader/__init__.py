"""Fetches models from a hub into the standard cache: plans, queues, resumes, verifies, publishes."""
