"""A file in a request that cannot be used."""

from __future__ import annotations


class MediaError(Exception):
    """Why, in words for who sent the file."""
