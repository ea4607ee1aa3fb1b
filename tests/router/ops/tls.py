"""A certificate for the loopback address, made by openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")


def tls_options(folder: Path) -> tuple[str, ...]:
    """The gateway's options for it; the certificate is `cert.pem` in the folder."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost"]
    request += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(request, check=True, capture_output=True, timeout=60)
    return ("--ssl-key-file", str(key), "--ssl-cert-file", str(certificate))
