"""Images and audio inside a JSON body: data URLs and bare base64."""

from __future__ import annotations

import binascii

from router.http.errors import invalid

SCHEMES = ("http://", "https://", "file://")


def media_bytes(url: str, param: str) -> bytes:
    """The file behind a `data:` URL or a bare base64 string.

    Addresses are refused: the gateway opens no connection and no file on a client's word.
    """
    if url.startswith(SCHEMES):
        raise invalid(f"{param}: addresses are not fetched; send the file as a data: URL with base64", param)
    encoded = url
    if url.startswith("data:"):
        head, comma, encoded = url.partition(",")
        if not comma or not head.endswith(";base64"):
            raise invalid(f"{param}: a data: URL must be base64 encoded", param)
    try:
        data = binascii.a2b_base64(encoded, strict_mode=False)
    except (binascii.Error, ValueError) as error:
        raise invalid(f"{param}: invalid base64", param) from error
    if not data:
        raise invalid(f"{param}: the file is empty", param)
    return data
