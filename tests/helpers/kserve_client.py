"""What Triton's clients see of KServe's server, as JSON: run as a script, inside the
network namespace of the server.
"""

import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import tritonclient.grpc as grpc
import tritonclient.http as http
from small_network import FEATURES, examples

HTTP, GRPC = 18080, 18081
NAMES = ("label", "probabilities", "interval", "decision", "label_name", "set")


def texts(array):
    return [each.decode() if isinstance(each, bytes) else str(each) for each in array.ravel()]


def answers(result):
    found = {name: result.as_numpy(name) for name in NAMES}
    return {
        name: texts(array) if array.dtype.kind in "OSU" else array.tolist()
        for name, array in found.items()
    }


def asked(module, inputs, **options):
    given = module.InferInput("features", list(inputs.shape), "FP32")
    given.set_data_from_numpy(inputs, **options)
    return given


def failure(call):
    try:
        call()
    except Exception as error:
        return f"{error.status()}: {error.message()}"
    return "answered"


def post(body):
    request = urllib.request.Request(
        f"http://127.0.0.1:{HTTP}/v2/models/digits/infer",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:  # noqa: S310
            return [reply.status, reply.read().decode()]
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()]


def over_http(inputs, broken):
    found = {}
    with http.InferenceServerClient(f"127.0.0.1:{HTTP}") as client:
        found["ready"] = client.is_server_live() and client.is_model_ready("digits")
        found["metadata"] = client.get_model_metadata("digits")
        for binary in (False, True):
            given = [asked(http, inputs, binary_data=binary)]
            wanted = [http.InferRequestedOutput(name, binary_data=binary) for name in NAMES]
            headers = {} if binary else {"Content-Type": "application/json"}
            result = client.infer("digits", given, outputs=wanted, headers=headers)
            found["binary" if binary else "json"] = answers(result)
        found["not finite"] = failure(lambda: client.infer("digits", [asked(http, broken)]))
        found["default"] = (
            client.infer("digits", [asked(http, inputs)]).as_numpy("probability").size
        )
    entry = {"name": "features", "datatype": "FP32", "shape": [1, FEATURES]}
    zeros = [0.0] * FEATURES
    for name, changes in {
        "open shape": {"shape": [-1, FEATURES], "data": zeros},
        "lying shape": {"shape": [2, FEATURES], "data": zeros},
        "other type": {"datatype": "FP64", "data": zeros},
        "other name": {"name": "pixels", "data": zeros},
    }.items():
        found[name] = post({"inputs": [{**entry, **changes}]})
    return found


def over_grpc(inputs, broken):
    found = {}
    with grpc.InferenceServerClient(f"127.0.0.1:{GRPC}") as client:
        found["ready"] = client.is_server_live() and client.is_model_ready("digits")
        wanted = [grpc.InferRequestedOutput(name) for name in NAMES]
        result = client.infer("digits", [asked(grpc, inputs)], outputs=wanted)
        found["binary"] = answers(result)
        found["not finite"] = failure(lambda: client.infer("digits", [asked(grpc, broken)]))
        other = grpc.InferInput("pixels", list(inputs.shape), "FP32")
        other.set_data_from_numpy(inputs)
        found["other name"] = failure(lambda: client.infer("digits", [other]))
    return found


def main():
    script = Path(__file__).with_name("kserve_server.py")
    server = subprocess.Popen(  # noqa: S603
        [sys.executable, str(script), str(HTTP), str(GRPC)],
        stdout=subprocess.DEVNULL,
        stderr=open(sys.argv[1], "w"),  # noqa: SIM115
    )
    try:
        end = time.monotonic() + 120
        while True:
            try:
                url = f"http://127.0.0.1:{HTTP}/v2/models/digits/ready"
                urllib.request.urlopen(url, timeout=5).close()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise
                time.sleep(0.2)
        inputs = examples(9, seed=5)[0].numpy()
        broken = np.full_like(inputs, np.nan)
        found = {"http": over_http(inputs, broken), "grpc": over_grpc(inputs, broken)}
        url = f"http://127.0.0.1:{HTTP}/metrics"
        with urllib.request.urlopen(url, timeout=30) as reply:  # noqa: S310
            found["metrics"] = reply.read().decode()
    finally:
        server.terminate()
        found_exit = server.wait(60)
    print(json.dumps({**found, "exit": found_exit}))


if __name__ == "__main__":
    main()
