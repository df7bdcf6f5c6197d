"""Requests that are wrong: each is refused with the right status and a sentence,
changes nobody else's answer, and leaves the server alive.
"""

import json
import socket
import struct
import threading
import time

import pytest
from serving import outputs_of, tensor
from small_network import FEATURES

GOOD = [[0.1 * index for index in range(FEATURES)]]
VALUES = GOOD[0]
HEAD = "Inference-Header-Content-Length"


def one(**changes):
    """A request with one input that is changed."""
    return {"inputs": [tensor(GOOD, **changes)]}


def with_value(value):
    return one(data=[value, *VALUES[1:]])


def text(value):
    """JSON with a literal that Python's own writer would not give."""
    return json.dumps(with_value("@")).replace('"@"', value).encode()


def binary(content, size=None, head_length=None, **changes):
    size = len(content) if size is None else size
    head = json.dumps(one(data=None, parameters={"binary_data_size": size}, **changes)).encode()
    length = len(head) if head_length is None else head_length
    return head + content, {HEAD: str(length)}


FLOATS = struct.pack(f"<{FEATURES}f", *VALUES)
NOT_FINITE = struct.pack(f"<{FEATURES}f", float("nan"), *VALUES[1:])
CASES = {
    # name: (what is sent, words of the sentence)
    "empty body": (b"", "JSON"),
    "not JSON": (b"{inputs", "JSON"),
    "not UTF-8": (b'{"id": "\xff\xfe"}', "JSON"),
    "a list": ([], "object"),
    "a number": (b"7", "object"),
    "no inputs": ({}, "`inputs`"),
    "inputs are empty": ({"inputs": []}, "`inputs`"),
    "inputs are an object": ({"inputs": {}}, "`inputs`"),
    "inputs are texts": ({"inputs": ["features"]}, "`name`"),
    "an input without a name": (one(name=None), "`name`"),
    "an unknown input": (one(name="pixels"), "pixels"),
    "a missing input beside an unknown output": (
        {**one(), "outputs": [{"name": "lables"}]},
        "lables",
    ),
    "the same input twice": ({"inputs": [tensor(GOOD), tensor(GOOD)]}, "more than once"),
    "no datatype": (one(datatype=None), "FP32"),
    "another datatype": (one(datatype="FP64"), "FP64"),
    "an unknown datatype": (one(datatype="FP8"), "FP8"),
    "a datatype that is a number": (one(datatype=32), "FP32"),
    "no shape": (one(shape=None), "shape"),
    "a shape with -1": (one(shape=[-1, FEATURES]), "[-1, 5]"),
    "a shape that lies about rows": (one(shape=[2, FEATURES]), "10 values"),
    "a shape that lies about columns": (one(shape=[1, FEATURES + 1]), "shape"),
    "a shape of too few dimensions": (one(shape=[FEATURES]), "shape"),
    "a shape of too many dimensions": (one(shape=[1, 1, FEATURES]), "shape"),
    "a shape without rows": (one(shape=[0, FEATURES], data=[]), "at least one"),
    "a shape of texts": (one(shape=["1", "5"]), "whole numbers"),
    "a shape of fractions": (one(shape=[1.0, 5.0]), "whole numbers"),
    "a shape of truths": (one(shape=[True, FEATURES]), "whole numbers"),
    "a huge shape": (one(shape=[10**18, FEATURES]), "values"),
    "no data": (one(data=None), "`data`"),
    "data that are a text": (one(data="0.5"), "`data`"),
    "data that are an object": (one(data={"0": 1}), "`data`"),
    "texts among the data": (with_value("0.5"), "text"),
    "null among the data": (with_value(None), "null"),
    "truths among the data": (with_value(True), "true or false"),
    "objects among the data": (with_value({}), "an object"),
    "lists of unequal length": (one(shape=[2, 5], data=[VALUES, VALUES[1:]]), "unequal"),
    "lists beside values": (one(data=[VALUES, 1.0]), "beside"),
    "lists of another shape": (one(data=[[value] for value in VALUES]), "lists"),
    "NaN": (text("NaN"), "NaN"),
    "infinity": (text("Infinity"), "JSON"),
    "1e39": (with_value(1e39), "finite"),
    "-1e39": (with_value(-1e39), "finite"),
    "1e400": (text("1e400"), ""),
    "a whole number without end": (text("1" + 400 * "0"), ""),
    "deep lists": (text("[" * 100_000), "JSON"),
    "an id that is a number": ({**one(), "id": 7}, "`id`"),
    "parameters that are a list": ({**one(), "parameters": [1]}, "`parameters`"),
    "a timeout that is a text": ({**one(), "parameters": {"timeout": "1"}}, "timeout"),
    "a negative timeout": ({**one(), "parameters": {"timeout": -1}}, "timeout"),
    "outputs that are a text": ({**one(), "outputs": "label"}, "`outputs`"),
    "an output without a name": ({**one(), "outputs": [{}]}, "`name`"),
    "an output that is classification": (
        {**one(), "outputs": [{"name": "label", "parameters": {"classification": 3}}]},
        "classification",
    ),
    "a flag that is a number": (
        {**one(), "outputs": [{"name": "label", "parameters": {"binary_data": 1}}]},
        "binary_data",
    ),
    "shared memory": (one(parameters={"shared_memory_region": "a"}), "hared memory"),
    "bytes that are cut short": (binary(FLOATS[:-1]), "bytes"),
    "bytes that are cut short behind their size": (binary(FLOATS[:-1], len(FLOATS)), "bytes"),
    "bytes too many": (binary(FLOATS + b"\0\0\0\0", len(FLOATS)), "belong to no input"),
    "bytes of another shape": (binary(FLOATS, shape=[2, FEATURES]), "40 bytes"),
    "NaN in bytes": (binary(NOT_FINITE), "finite"),
    "a size of bytes that is negative": (binary(FLOATS, -1), "binary_data_size"),
    "a size of bytes that is a text": (binary(FLOATS, "20"), "binary_data_size"),
    "bytes and data": (
        one(parameters={"binary_data_size": 0}),
        "binary_data_size",
    ),
    "a header length beyond the body": (binary(FLOATS, head_length=10**6), HEAD),
    "a header length that is a text": (binary(FLOATS, head_length="ten"), HEAD),
    "a header length that is negative": (binary(FLOATS, head_length=-5), HEAD),
    "a header length that cuts the JSON": (binary(FLOATS, head_length=20), "JSON"),
}


@pytest.fixture(scope="module")
def usual(server):
    return outputs_of(server.infer(one()))


@pytest.mark.parametrize("name", CASES)
def test_a_malformed_request_is_refused_with_a_sentence(server, usual, name):
    sent, words = CASES[name]
    content, headers = sent if isinstance(sent, tuple) else (sent, {})
    reply = server.infer(content, headers=headers)
    assert reply.status == 400, reply.body
    assert reply.headers["content-type"] == "application/json"
    assert words in reply.json["error"]
    assert reply.json["error"].endswith(".")
    assert outputs_of(server.infer(one())) == usual  # alive, and of the same opinion


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/v2/models/cats/infer", 404),
        ("POST", "/v2/models/digits/versions/9/infer", 404),
        ("POST", "/v2/models/digits/versions/one/infer", 404),
        ("POST", f"/v2/models/{'x' * 5000}/infer", 404),
        ("GET", "/v2/models/cats", 404),
        ("GET", "/v2/models/cats/ready", 404),
        ("GET", "/v3", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/models/digits/infer", 405),
        ("POST", "/v2", 405),
        ("DELETE", "/v2/models/digits", 405),
    ],
)
def test_an_address_that_is_not_there(server, method, path, status):
    reply = server.call(method, path, json.dumps(one()).encode())
    assert reply.status == status
    assert reply.json["error"].endswith(".")


def test_a_compressed_body_is_refused(server):
    reply = server.infer(one(), headers={"Content-Encoding": "gzip"})
    assert reply.status == 415
    assert server.infer(one(), headers={"Content-Encoding": "identity"}).status == 200


def test_what_is_no_http_is_in_the_log_as_json(server):
    server.raw(b"BREW /coffee-1234 HTTP/1.1\r\n\r\n")
    upgrade = ("Connection: Upgrade", "Upgrade: websocket", "Content-Length: 2")
    server.raw(post(*upgrade, body=b"{}").replace(b"Host", b"Connection: close\r\nHost"))
    assert server.infer(one()).status == 200
    assert [line for line in server.lines if not line.startswith("{")] == []
    warned = [entry for entry in server.log() if entry["event"] == "uvicorn"]
    assert {"level": "warning", "event": "uvicorn"}.items() <= warned[-1].items()
    assert not any("coffee" in line for line in server.lines)


def statuses_of(received):
    return [int(part.split(b" ", 2)[1]) for part in received.split(b"HTTP/1.1")[1:]]


def test_requests_in_one_piece_are_answered_in_order(server):
    """Pipelined, in chunks, and with a body that waits to be asked for."""
    good, last = json.dumps(one()).encode(), ("Connection: close",)
    length = f"Content-Length: {len(good)}"
    bad = post("Content-Length: 2", body=b"{}")
    several = post(length, body=good) + bad + post(length, *last, body=good)
    assert statuses_of(server.raw(several)) == [200, 400, 200]
    huge = post(length, body=good) + post(f"Content-Length: {2**30}") + post(length, body=good)
    assert statuses_of(server.raw(huge)) == [200, 413]  # what follows it is not read
    parts = [good[start : start + 7] for start in range(0, len(good), 7)]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\n\r\n"
    assert statuses_of(server.raw(post("Transfer-Encoding: chunked", *last, body=chunks))) == [200]
    both = post("Transfer-Encoding: chunked", length, *last, body=chunks)
    assert statuses_of(server.raw(both)) == [400]  # two lengths are a way to smuggle
    assert statuses_of(server.raw(post(length, "Content-Length: 3", body=good))) == [400]
    waiting = post(length, "Expect: 100-continue", *last, body=good)
    assert statuses_of(server.raw(waiting)) == [100, 200]


def test_clients_that_go_away_harm_nobody(server, usual):
    good = json.dumps(one()).encode()
    for cut in (len(good), 20) * 20:
        connection = socket.create_connection(("127.0.0.1", server.port))
        connection.sendall(post(f"Content-Length: {len(good)}", body=good[:cut]))
        # closed by a reset, while the answer is on its way
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()
    found = outputs_of(server.infer(one()))  # with what those left behind, so not to the last digit
    assert found["label"] == usual["label"]
    assert found["interval"][0] == pytest.approx(usual["interval"][0], abs=1e-5)
    assert not [entry for entry in server.log() if entry["event"] == "failure"]


def status_of(received):
    return int(received.split(b" ", 2)[1])


def post(*lines, body=b""):
    head = ("POST /v2/models/digits/infer HTTP/1.1", "Host: here", *lines)
    return "\r\n".join([*head, "", ""]).encode() + body


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (post(f"Content-Length: {2**30}"), 413),
        (post("Content-Length: 99999999999999999999999999"), 400),
        (post("Content-Length: ten"), 400),
        (post("Content-Length: -1"), 400),
        (post("Transfer-Encoding: chunked", body=b"110000\r\n" + bytes(0x110000)), 413),
        (post("Transfer-Encoding: chunked", body=b"not a length\r\n"), 400),
        (post(f"X-Long: {'x' * 100_000}"), 431),
        (post(*(f"X-{index}: {'x' * 100}" for index in range(1000))), 431),
        (b"GET /" + 100_000 * b"x" + b" HTTP/1.1\r\n\r\n", 431),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200), 400),
        (b"BREW /coffee HTTP/1.1\r\n\r\n", 400),
    ],
    ids=[
        "a length of 1 GB",
        "a length beyond all numbers",
        "a length that is a text",
        "a negative length",
        "chunks beyond the limit",
        "chunks that are none",
        "a huge header",
        "many headers",
        "a huge address",
        "TLS",
        "no method of HTTP",
    ],
)
def test_what_is_hardly_http_is_refused_at_once(server, content, status):
    start = time.monotonic()
    received = server.raw(content)
    assert status_of(received) == status
    assert b'"error"' in received
    assert time.monotonic() - start < 5
    assert server.infer(one()).status == 200


def test_a_client_that_sends_slowly_is_let_go_and_harms_nobody(server):
    """Headers that never end are cut off by the time they may take."""
    slow = []
    for _ in range(20):
        connection = socket.create_connection(("127.0.0.1", server.port), timeout=30)
        connection.sendall(b"POST /v2/models/digits/infer HTTP/1.1\r\nHost: here\r\n")
        slow.append(connection)
    start, received = time.monotonic(), []

    def dribble():
        for connection in slow:
            part = b""
            try:
                while not part:
                    connection.sendall(b"X")
                    connection.settimeout(1)
                    try:
                        part = connection.recv(4096)
                    except TimeoutError:
                        if time.monotonic() - start > 25:
                            break
                received.append(part)
            except ConnectionError:
                received.append(b"HTTP/1.1 408 closed")

    thread = threading.Thread(target=dribble)
    thread.start()
    while thread.is_alive():
        assert server.infer(one(), timeout=5).status == 200
        time.sleep(0.2)
    for connection in slow:
        connection.close()
    assert time.monotonic() - start < 25
    assert len(received) == 20
    assert all(status_of(part) == 408 for part in received)


def test_bad_and_good_clients_together(server, usual):
    """Each good one gets its own answer while others send what is wrong."""
    rows = [[float(index)] * FEATURES for index in range(-8, 8)]
    wanted = [outputs_of(server.infer({"inputs": [tensor([row])]})) for row in rows]
    problems, bad = [], [CASES[name][0] for name in ("NaN", "1e39", "no data", "a list")]

    def good(index):
        for _ in range(20):
            found = outputs_of(server.infer({"inputs": [tensor([rows[index]])]}))
            same = found["probability"] == pytest.approx(wanted[index]["probability"], abs=1e-5)
            if found["label"] != wanted[index]["label"] or not same:
                problems.append((index, found))

    def wrong(index):
        statuses = {server.infer(bad[index % len(bad)]).status for _ in range(20)}
        problems.extend(statuses - {400})

    threads = [threading.Thread(target=good, args=(index,)) for index in range(len(rows))]
    threads += [threading.Thread(target=wrong, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
