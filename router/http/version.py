"""What the gateway calls itself in answers."""

from __future__ import annotations

from importlib.metadata import version

VERSION = version("llamaherd")
FINGERPRINT = f"llamaherd-{VERSION}"
