"""What a client sees: start, prompt round trip, streaming, loading. Ratios to the Python SDK.

    .venv/bin/python benchmarks/wire.py [--rounds N] [--chunks N] [--history N]

All agents run in turn in every round, and a ratio is that of one round; the median counts. Single
times move with the machine, ratios hardly do.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson

HERE = Path(__file__).parent
BLOCK = 1 << 20
PROMPTS = 200


class Agent:
    """One agent process, driven without parsing what is on the clock."""

    def __init__(self, argv: Sequence[str], env: dict[str, str] | None = None) -> None:
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **(env or {})},
            bufsize=0,
        )
        self._next_id = 0
        self._rest = b""

    def call(self, method: str, params: dict[str, Any]) -> tuple[Any, int]:
        """Send a request; return its result and the number of other frames that came before."""
        self._next_id += 1
        frame = {"jsonrpc": "2.0", "id": self._next_id, "method": method, "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(frame) + b"\n")
        return self._answer(self._next_id)

    def _answer(self, request_id: int) -> tuple[Any, int]:
        # Only a response has the four bytes `"id"`: inside a string the quotes are escaped.
        assert self.process.stdout is not None
        frames = 0
        while True:
            data = self._rest + os.read(self.process.stdout.fileno(), BLOCK)
            *lines, self._rest = data.split(b"\n")
            for line in lines:
                if b'"id"' in line and (answer := orjson.loads(line)).get("id") == request_id:
                    if "error" in answer:
                        raise RuntimeError(answer["error"])
                    return answer["result"], frames
                frames += 1

    def close(self) -> float:
        """End its input; return the seconds until it is gone."""
        assert self.process.stdin is not None
        began = time.perf_counter()
        self.process.stdin.close()
        self.process.wait(10)
        return time.perf_counter() - began

    def usage(self) -> tuple[float, float]:
        """Return CPU seconds and peak RSS in MB so far."""
        stat = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks = int(stat[11]) + int(stat[12])
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
        return ticks / os.sysconf("SC_CLK_TCK"), int(peak.split()[1]) / 1024


def text(words: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": words}]


def measure(
    argv: Sequence[str], cwd: str, chunks: int, history: int, *, builds: bool
) -> dict[str, float]:
    """Return the figures of one agent; one that stores nothing loads a history from memory."""
    found: dict[str, float] = {}
    agent = Agent(argv)
    agent.call("initialize", {"protocolVersion": 1})
    found["start -> initialize (ms)"] = (time.perf_counter() - agent.started) * 1e3
    session = agent.call("session/new", {"cwd": cwd, "mcpServers": []})[0]["sessionId"]
    prompt = {"sessionId": session}
    agent.call("session/prompt", {**prompt, "prompt": text("warm up")})
    times = []
    for _ in range(PROMPTS):
        began = time.perf_counter()
        agent.call("session/prompt", {**prompt, "prompt": text("ping")})
        times.append(time.perf_counter() - began)
    found["prompt p50 (ms)"] = statistics.median(times) * 1e3
    before, _ = agent.usage()
    began = time.perf_counter()
    _, frames = agent.call("session/prompt", {**prompt, "prompt": text(f"stream {chunks}")})
    found["stream (frames/s)"] = frames / (time.perf_counter() - began)
    found["agent cpu a frame (us)"] = (agent.usage()[0] - before) / frames * 1e6
    loaded = agent.call("session/new", {"cwd": cwd, "mcpServers": []})[0]["sessionId"]
    if builds:
        for _ in range(history // 2000):
            params = {"sessionId": loaded, "prompt": text("stream 2000")}
            agent.call("session/prompt", params)
    found["end of input -> exit (ms)"] = agent.close() * 1e3
    agent = Agent(argv, {} if builds else {"BENCH_HISTORY": str(history)})
    agent.call("initialize", {"protocolVersion": 1})
    agent.call("session/new", {"cwd": cwd, "mcpServers": []})
    began = time.perf_counter()
    agent.call("session/load", {"sessionId": loaded, "cwd": cwd, "mcpServers": []})
    found[f"load of {history} updates (ms)"] = (time.perf_counter() - began) * 1e3
    found["peak RSS after load (MB)"] = agent.usage()[1]
    agent.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--chunks", type=int, default=30_000)
    parser.add_argument("--history", type=int, default=100_000)
    options = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {"python sdk": [], "acp-server": []}
    for number in range(options.rounds):
        with tempfile.TemporaryDirectory() as folder:
            ours = [sys.executable, "-m", "acp_server", "serve", "--store", f"jsonl:{folder}/store"]
            ours += ["--agent", f"{HERE / 'stream_agent.py'}:stream"]
            sdk = [sys.executable, str(HERE / "peers" / "sdk_agent.py")]
            for name, argv in (("python sdk", sdk), ("acp-server", ours)):
                rounds[name].append(
                    measure(
                        argv,
                        folder,
                        options.chunks,
                        options.history,
                        builds=name == "acp-server",
                    )
                )
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    print(f"{'':34}{'python sdk':>14}{'acp-server':>14}{'ratio':>9}")
    for key in rounds["python sdk"][0]:
        base = [one[key] for one in rounds["python sdk"]]
        mine = [one[key] for one in rounds["acp-server"]]
        ratio = statistics.median(m / b for m, b in zip(mine, base, strict=True))
        print(
            f"{key:34}{statistics.median(base):14,.2f}{statistics.median(mine):14,.2f}{ratio:9.3f}"
        )


if __name__ == "__main__":
    main()
