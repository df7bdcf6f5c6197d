"""Servers in processes of their own, on the loopback, and a client that sends what it
is told to.
"""

import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import NamedTuple

SECONDS = 60  # for a server to start on a busy machine


class Reply(NamedTuple):
    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


@dataclass
class Running:
    """A server that runs, and what it wrote to its log."""

    process: subprocess.Popen
    port: int
    lines: list = field(default_factory=list)

    def call(self, method, path, body=None, headers=None, *, timeout=SECONDS):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        with contextlib.closing(connection):
            connection.request(method, path, body, headers or {})
            answer = connection.getresponse()
            headers = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, headers, answer.read())

    def get(self, path, **headers):
        return self.call("GET", path, headers=headers)

    def infer(self, content, model="digits", *, headers=None, timeout=SECONDS):
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return self.call("POST", f"/v2/models/{model}/infer", body, headers, timeout=timeout)

    def raw(self, content, *, timeout=SECONDS):
        """What comes back for some bytes, until the server closes the connection."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            with contextlib.suppress(ConnectionError):  # a server may refuse before it read all
                connection.sendall(content)
            received = b""
            with contextlib.suppress(ConnectionError):
                while part := connection.recv(65536):
                    received += part
            return received

    def log(self):
        return [json.loads(line) for line in self.lines if line.startswith("{")]


@contextlib.contextmanager
def running(*command, folder, **environment):
    """A server that says on standard error where it listens; ended by SIGTERM."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    process = subprocess.Popen(  # noqa: S603
        [sys.executable, *map(str, command)],
        cwd=folder,
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    server = Running(process, 0)
    listening = threading.Event()

    def read():
        for line in process.stderr:
            server.lines.append(line)
            if '"listening"' in line:
                server.port = int(json.loads(line)["address"].rpartition(":")[2])
                listening.set()
        listening.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        assert listening.wait(SECONDS), "the server did not start"
        assert server.port, "".join(server.lines)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(SECONDS)
        process.stderr.close()


def tensor(rows, name="features", datatype="FP32", **changes):
    """An input of a request; changes of None leave an entry out."""
    data = [value for row in rows for value in row]
    entry = {
        "name": name,
        "datatype": datatype,
        "shape": [len(rows), len(rows[0])],
        "data": data,
        **changes,
    }
    return {key: value for key, value in entry.items() if value is not None}


def outputs_of(reply):
    """Arrays of a JSON reply by name, as lists of rows."""
    assert reply.status == 200, reply.body
    found = {}
    for output in reply.json["outputs"]:
        data, shape = output["data"], output["shape"]
        width = 1
        for size in shape[1:]:
            width *= size
        rows = [data[start : start + width] for start in range(0, len(data), width)]
        found[output["name"]] = rows if len(shape) > 1 else data
    return found
