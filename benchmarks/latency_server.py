"""An OpenAI-compatible server that only waits: every answer is one bash call, after `latency_s`.

For the client benchmarks; runs in a process of its own so that its time is not the client's.

    python benchmarks/latency_server.py LATENCY_S     prints its port
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

BODY = json.dumps(
    {
        "id": "chatcmpl-0",
        "object": "chat.completion",
        "created": 0,
        "model": "waits",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "Let me look at the next part of the file before I change it.",
                    "tool_calls": [
                        {
                            "id": "call_0",
                            "type": "function",
                            "function": {
                                "name": "bash",
                                "arguments": '{"command": "sed -n 1,80p src/module.py"}',
                            },
                        }
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 40, "total_tokens": 1040},
    }
).encode()
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
    b"Content-Length: " + str(len(BODY)).encode() + b"\r\n\r\n" + BODY
)


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, latency_s: float
) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            await asyncio.sleep(latency_s)
            writer.write(ANSWER)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        writer.close()


async def main(latency_s: float) -> None:
    server = await asyncio.start_server(
        lambda r, w: answer(r, w, latency_s), "127.0.0.1", 0, limit=2**22, backlog=512
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def latency_server(latency_s: float) -> Iterator[str]:
    """Yield the base URL of a server in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), str(latency_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/v1"
        finally:
            process.terminate()


if __name__ == "__main__":
    try:
        asyncio.run(main(float(sys.argv[1])))
    except KeyboardInterrupt:
        sys.exit(130)
