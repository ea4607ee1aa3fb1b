"""References: what is understood, and what is refused before anything is asked."""

from __future__ import annotations

import pytest

from downloader.faults import DownloadFault
from downloader.reference import Reference, parse_reference
from protocol.errors import ErrorKind


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user/repo", Reference("user/repo")),
        ("  user/repo ", Reference("user/repo")),
        ("user/repo:Q4_K_M", Reference("user/repo", quant="Q4_K_M")),
        ("user/repo@v1.2", Reference("user/repo", "v1.2")),
        ("user/repo@v1.2:Q8_0", Reference("user/repo", "v1.2", "Q8_0")),
        ("user/repo:Q8_0@v1.2", Reference("user/repo", "v1.2", "Q8_0")),
        ("user/repo@refs/pr/4", Reference("user/repo", "refs/pr/4")),
        ("user/repo/model.gguf", Reference("user/repo", path="model.gguf")),
        ("user/repo/sub/dir/model.gguf", Reference("user/repo", path="sub/dir/model.gguf")),
        ("user/repo@v1/sub/model.gguf", Reference("user/repo", "v1", path="sub/model.gguf")),
        ("hf.co/user/repo:IQ4_XS", Reference("user/repo", quant="IQ4_XS")),
        ("https://huggingface.co/user/repo", Reference("user/repo")),
        ("https://huggingface.co/user/repo/blob/v1/a%20b.gguf", Reference("user/repo", "v1", path="a b.gguf")),
        ("https://huggingface.co/user/repo/resolve/main/a.gguf?download=true", Reference("user/repo", path="a.gguf")),
        ("https://huggingface.co/user/repo/tree/main", Reference("user/repo")),
    ],
)
def test_understood(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "repo",
        "/etc/passwd",
        "../up/repo",
        "./user/repo",
        "~/user/repo",
        "user/",
        "/repo",
        "user//repo",
        "user/repo/",
        "user/repo:",
        "user/repo@",
        "user/..:Q4",
        "us er/repo",
        "user/re--po",
        "user/repo.git",
        "user/repo\nX",
        "user\\repo/x",
        "user/repo/../../other/x.gguf",
        "user/repo/sub/../x.gguf",
        "user/repo/./x.gguf",
        "user/repo/readme.md",
        "user/repo@../../x",
        "user/repo@-x",
        "user/repo@/main",
        "user/repo:Q4/../..",
        "user/repo:Q4 K",
        "user/" + "r" * 200,
        "x" * 5000,
        "https://huggingface.co/user",
        "https://huggingface.co/user/repo/resolve/main/%2e%2e/x.gguf",
        "https://huggingface.co/user/repo/raw/main/readme.md",
    ],
)
def test_refused(text: str) -> None:
    with pytest.raises(DownloadFault) as fault:
        parse_reference(text)
    assert fault.value.kind is ErrorKind.INVALID_REQUEST
    assert not fault.value.retryable


def test_text_and_reference_go_back_and_forth() -> None:
    for text in ("user/repo", "user/repo@v1:Q8_0", "user/repo:Q4_K_M", "user/repo@v1/a/b.gguf"):
        assert str(parse_reference(text)) == text
