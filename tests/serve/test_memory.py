"""A server that runs for long does not grow: from request 10⁴ to 10⁵, by less than 20
MB.
"""

import http.client
import json
import threading
from pathlib import Path

import pytest
from serving import running, tensor
from small_network import FEATURES

pytestmark = pytest.mark.slow

CLIENTS = 8
GOOD = json.dumps({"inputs": [tensor([[0.1] * FEATURES])]}).encode()
BAD = json.dumps({"inputs": [tensor([[0.1] * FEATURES], shape=[9, 9])]}).encode()


def resident_megabytes(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def send(server, count):
    """Requests on connections that are kept; every tenth is bad, every hundredth new."""
    problems = []

    def client():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        for index in range(count // CLIENTS):
            body, wanted = (BAD, 400) if index % 10 == 0 else (GOOD, 200)
            connection.request("POST", "/v2/models/digits/infer", body)
            reply = connection.getresponse()
            reply.read()
            if reply.status != wanted:
                problems.append(reply.status)
            if index % 100 == 0:
                connection.close()
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
def test_memory_stays_where_it_is(project, serve_command, model_options):
    options = ("digits=classifier.safetensors", *model_options, "--log-level", "error")
    with running(*serve_command, *options, folder=project) as server:
        send(server, 10_000)
        before = resident_megabytes(server.process)
        send(server, 90_000)
        after = resident_megabytes(server.process)
    print(f"resident memory: {before:.1f} MB after 10^4 requests, {after:.1f} MB after 10^5")
    assert after - before < 20
