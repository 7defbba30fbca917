"""The stdio transport in real processes: what reaches stdout, and what is left behind."""

import os
import pty
import socket
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Final

import pytest

ECHO: Final = """
    import anyio
    from acp_server.transport import StdioTransport

    early = None

    async def serve():
        async with early or StdioTransport.open() as transport, anyio.create_task_group() as tasks:
            tasks.start_soon(transport.run)
            while (frames := await transport.receive()) is not None:
                for frame in frames:
                    transport.send(on_frame(frame) + b"\\n")
            await transport.drained()
            tasks.cancel_scope.cancel()

    def on_frame(frame):
        return frame
"""

TIMEOUT_S: Final = 20


def script(*parts: str) -> list[str]:
    source = "\n".join(textwrap.dedent(part) for part in (*parts, "anyio.run(serve)"))
    return [sys.executable, "-c", source]


def run(*parts: str, input: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return subprocess.run(
        script(ECHO, *parts),
        input=input,
        capture_output=True,
        timeout=TIMEOUT_S,
        # Unbuffered, what is printed before the transport opens would be out already.
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )


def test_frames_go_through_and_the_end_of_input_ends_the_process() -> None:
    done = run(input=b"one\ntwo\nthree")
    assert (done.returncode, done.stdout, done.stderr) == (0, b"one\ntwo\nthree\n", b"")


@pytest.mark.rule("large-frames-come-whole")
@pytest.mark.case("B01")
@pytest.mark.parametrize("size", [65_535, 65_536, 65_537, 131_073, 8_388_608])
def test_a_large_frame_and_the_next_one_in_one_write(size: int) -> None:
    stream = b"a" * size + b"\nnext\n"
    assert run(input=stream).stdout == stream


@pytest.mark.rule("stdout-has-frames-only")
@pytest.mark.case("B03")
def test_only_frames_reach_stdout_from_the_first_byte_to_the_exit() -> None:
    noise = """
        import atexit, logging, os, subprocess, sys, warnings
        atexit.register(print, "at exit")
        logging.basicConfig(level=logging.DEBUG, stream=sys.stdout)

        def on_frame(frame):
            print("printed", flush=True)
            os.write(1, b"raw\\n")
            sys.__stdout__.write("dunder\\n")
            subprocess.run(["echo", "child"], check=True)
            warnings.warn("warned")
            logging.warning("logged")
            return frame
    """
    done = run("print('before'); early = StdioTransport.open()", noise, input=b"one\ntwo\n")
    assert (done.returncode, done.stdout) == (0, b"one\ntwo\n")
    for word in ("before", "printed", "raw", "dunder", "child", "warned", "logged", "at exit"):
        assert word in done.stderr.decode()


@pytest.mark.rule("children-have-no-wire")
@pytest.mark.case("B04")
def test_a_child_finds_an_empty_stdin_and_no_descriptor_of_the_wire() -> None:
    child = """
        import os, subprocess, sys

        PROBE = "import os, sys; print(os.readlink('/proc/self/fd/0'), len(sys.stdin.read()), *[" \\
            "os.readlink(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')" \\
            " if os.path.exists(f'/proc/self/fd/{fd}')])"

        def on_frame(frame):
            wire = {os.readlink(f"/proc/self/fd/{fd}") for fd in (transport_fds())}
            child = subprocess.run(
                [sys.executable, "-c", PROBE], stdout=subprocess.PIPE, close_fds=False, check=True
            )
            stdin, length, *links = child.stdout.decode().split()
            return f"{stdin} {length} {sorted(wire & set(links))}".encode()

        def transport_fds():
            # The other end of stderr is no part of the wire.
            return [fd for fd in os.listdir("/proc/self/fd") if int(fd) > 2
                    and os.path.exists(f"/proc/self/fd/{fd}")
                    and os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:")
                    and os.readlink(f"/proc/self/fd/{fd}") != os.readlink("/proc/self/fd/2")]
    """
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    done = run(child, input=b"probe\nmust not be eaten\n")
    assert done.stdout == b"/dev/null 0 []\n/dev/null 0 []\n"


@pytest.mark.rule("end-of-input-ends-server")
@pytest.mark.case("B05")
def test_stdin_from_dev_null_is_an_end_of_input() -> None:
    done = subprocess.run(
        script(ECHO), stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_regular_files_serve_as_stdin_and_stdout(tmp_path: Path) -> None:
    source, sink = tmp_path / "in", tmp_path / "out"
    stream = b"".join(b"%d %s\n" % (number, b"x" * 1000) for number in range(2000))
    source.write_bytes(stream)
    with source.open("rb") as stdin, sink.open("wb") as stdout:
        done = subprocess.run(
            script(ECHO), stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, timeout=TIMEOUT_S
        )
    assert (done.returncode, done.stderr) == (0, b"")
    assert sink.read_bytes() == stream


@pytest.mark.parametrize("fail", ["", "raise KeyError"])
def test_the_parents_descriptor_is_blocking_again_at_the_end(fail: str) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.sendall(b"one\n")
        if not fail:
            ours.shutdown(socket.SHUT_WR)
        done = subprocess.run(
            script(ECHO, f"def on_frame(frame):\n    {fail or 'return frame'}"),
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            timeout=TIMEOUT_S,
        )
        assert os.get_blocking(theirs.fileno())
        assert done.returncode == (1 if fail else 0)
        theirs.close()
        assert ours.recv(100) == (b"" if fail else b"one\n")


def test_one_terminal_serves_as_all_three(tmp_path: Path) -> None:
    server, client = pty.openpty()
    process = subprocess.Popen(script(ECHO), stdin=client, stdout=client, stderr=client)
    os.write(server, b"hello\n\x04")
    assert process.wait(TIMEOUT_S) == 0
    assert os.get_blocking(client)
    # The terminal's own echo, then the frame.
    assert os.read(server, 100).replace(b"^D\b\b", b"") == b"hello\r\nhello\r\n"
    os.close(server)
    os.close(client)


def test_a_reader_that_goes_away_ends_the_output_without_a_traceback() -> None:
    closed = """
        import signal, sys
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)

        async def serve():
            async with StdioTransport.open() as transport:
                transport.send(b"x" * 1_000_000 + b"\\n")
                await transport.run()
                sys.exit(5 if transport.closed else 6)
    """
    process = subprocess.Popen(
        script(ECHO, closed),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.close()
    process.stdout = None
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, errors) == (5, b"")


@pytest.mark.parametrize("closed", ["0<&-", "2>&-", "0<&- 2>&-", "1>&-", "0<&- 1>&- 2>&-"])
def test_standard_descriptors_closed_at_the_start_are_survived(closed: str) -> None:
    server = script(ECHO, "def on_frame(f): print(f); return f")
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *server],
        input=b"one\n",
        capture_output=True,
        timeout=TIMEOUT_S,
    )
    expected = b"" if "0<" in closed or "1>" in closed else b"one\n"
    assert (done.returncode, done.stdout) == (0, expected)


NOISE: Final = """
    import atexit, subprocess, sys

    atexit.register(print, "last")

    def on_frame(frame):
        subprocess.run(["echo", "child"], check=True)
        for number in range(100_000):
            print(f"{number:07}")
        sys.stdout.flush()
        return frame
"""


@pytest.mark.rule("stderr-never-blocks")
@pytest.mark.parametrize("target", ["pipe", "file"])
def test_all_that_is_printed_reaches_a_reader_in_order(target: str, tmp_path: Path) -> None:
    numbers = b"".join(b"%07d\n" % number for number in range(100_000))
    expected = b"child\n" + numbers + b"last\n"
    if target == "pipe":
        assert run(NOISE, input=b"one\n").stderr == expected
        return
    with (tmp_path / "stderr").open("wb") as stderr:
        subprocess.run(script(ECHO, NOISE), input=b"one\n", stderr=stderr, timeout=TIMEOUT_S)
    assert (tmp_path / "stderr").read_bytes() == expected


@pytest.mark.rule("stderr-never-blocks")
def test_what_a_late_reader_missed_is_counted() -> None:
    process = subprocess.Popen(
        script(ECHO, NOISE),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    with process:
        # Each frame prints 800 kB, and nobody reads them until all are answered.
        for _ in range(10):
            process.stdin.write(b"one\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"one\n"
        first = process.stderr.read(4_000_000)
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        process.stdin.close()
        errors = first + process.stderr.read()
        assert process.wait(TIMEOUT_S) == 0
    watchdog.cancel()
    printed = 11 * (100_000 * 8 + len(b"child\n")) + len(b"last\n")
    notes = [line for line in errors.split(b"\n") if b"dropped" in line]
    dropped = sum(int(note.split()[0].removeprefix(b"[")) for note in notes)
    assert dropped > 0
    assert len(errors) - sum(len(note) + 2 for note in notes) + dropped == printed
