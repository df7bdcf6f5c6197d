"""Requests that wait are answered together; what is bad is answered alone; too many,
too late and SIGTERM have their answers.
"""

import asyncio
import contextlib
import json
import logging
import signal
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
import serving
from serving import outputs_of, running

from laplacebridge.serve import RequestError, Served, TensorSpec
from laplacebridge.serve.batching import Batcher
from laplacebridge.serve.logs import Log, forwarded_to

SCRIPT = Path(serving.__file__).with_name("slow_server.py")


def asked(seconds, **parameters):
    entry = {"name": "seconds", "datatype": "FP32", "shape": [1, 1], "data": [seconds]}
    return {"inputs": [entry], "parameters": parameters}


@contextlib.contextmanager
def slow_server(folder, **settings):
    options = [f"{name}={value}" for name, value in settings.items()]
    with running(SCRIPT, *options, folder=folder) as server:
        yield server


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with slow_server(tmp_path_factory.mktemp("slow"), request_seconds=2.0) as started:
        yield started


class Together:
    """Requests that are sent at once, each from a thread of its own."""

    def __init__(self, server, contents, pause=0.0):
        self.replies = [None] * len(contents)

        def send(index, content):
            with contextlib.suppress(ConnectionError, OSError):
                self.replies[index] = server.infer(content, "slow")

        self.threads = [threading.Thread(target=send, args=item) for item in enumerate(contents)]
        for thread in self.threads:
            thread.start()
            time.sleep(pause)

    def wait(self):
        for thread in self.threads:
            thread.join()
        return self.replies


def test_requests_that_wait_are_answered_together_each_with_its_own(server):
    replies = Together(server, [asked(0.5 + index / 100) for index in range(10)]).wait()
    found = [outputs_of(reply) for reply in replies]
    slept = [entry["slept"][0] for entry in found]
    assert slept == pytest.approx([0.5 + index / 100 for index in range(10)])
    assert max(entry["together"][0] for entry in found) >= 5


class Counting(Served):
    """Notes how many examples it is given at once."""

    platform = "test"
    inputs = (TensorSpec("number", "FP32", (-1, 1)),)
    outputs = (TensorSpec("number", "FP32", (-1,)),)
    default_outputs = ("number",)

    def __init__(self):
        self.batches = []

    def answer(self, inputs, wanted):
        self.batches.append(len(inputs["number"]))
        return {"number": inputs["number"][:, 0]}


@pytest.mark.parametrize(("clients", "largest"), [(1, 64), (16, 64), (16, 8), (12, 8)])
def test_clients_that_ask_again_after_their_answers_are_answered_together_again(clients, largest):
    counting, rounds = Counting(), 20
    batcher = Batcher(counting, max_rows=largest)

    async def client(number):
        for _ in range(rounds):
            asked_for = {"number": np.full((1, 1), number, np.float32)}
            answers = await batcher.answer(asked_for, frozenset(), 1, 30.0)
            assert answers["number"].tolist() == [number]
            await asyncio.sleep(0)  # an answer is sent in one round of the loop, and the next
            await asyncio.sleep(0)  # request is read in another

    async def all_clients():
        await asyncio.gather(*map(client, range(clients)))

    batcher.start()
    asyncio.run(all_clients())
    batcher.close()
    full = min(clients, largest)
    # all but those that a busy machine kept waiting for longer than a gathering may take
    assert counting.batches.count(full) >= 0.8 * rounds * clients / full, counting.batches


class EndsOnce(Counting):
    """Raises what no future takes, and then answers."""

    def answer(self, inputs, wanted):
        if not self.batches:
            self.batches.append(0)
            raise StopIteration("no more")
        return super().answer(inputs, wanted)


def test_a_network_that_raises_stop_iteration_harms_its_own_request_alone():
    batcher = Batcher(EndsOnce())

    async def ask():
        number = {"number": np.ones((1, 1), np.float32)}
        return await batcher.answer(number, frozenset(), 1, 5.0)

    async def twice():
        with pytest.raises(RuntimeError, match="no more"):
            await ask()
        return await ask()

    batcher.start()
    answers = asyncio.run(twice())
    batcher.close()
    assert answers["number"].tolist() == [1.0]


class OddOnce(Counting):
    """Answers with no row at all, and then as it should."""

    def answer(self, inputs, wanted):
        if not self.batches:
            self.batches.append(0)
            return {"number": np.array(1.0, np.float32)}
        return super().answer(inputs, wanted)


def test_a_model_that_answers_without_rows_harms_its_own_request_alone():
    batcher = Batcher(OddOnce())
    batcher.start()
    with pytest.raises(IndexError):
        asyncio.run(answered(batcher))
    assert asyncio.run(answered(batcher))
    batcher.close()


def number(value=1.0):
    return {"number": np.full((1, 1), value, np.float32)}


async def answered(batcher, value=1.0, seconds=10.0):
    answers = await batcher.answer(number(value), frozenset(), 1, seconds)
    return answers["number"].tolist() == [value]


def test_figures_that_cannot_be_kept_cost_no_answer_and_no_second_run(caplog):
    def observe(_, answers):
        raise ValueError(answers)

    counting = Counting()
    batcher = Batcher(counting, observe=observe)

    async def both():
        return await asyncio.gather(answered(batcher, 1.0), answered(batcher, 2.0))

    batcher.start()
    assert asyncio.run(both()) == [True, True]
    batcher.close()
    assert counting.batches == [2]
    assert [record.message for record in caplog.records] == ["A batch was not counted: ValueError"]


def test_what_the_library_logs_is_an_event_of_the_server(capsys):
    with forwarded_to(Log()):
        logging.getLogger("laplacebridge.serve.batching").error("A batch was not counted: %s", "x")
    event = json.loads(capsys.readouterr().err)
    assert (event["level"], event["event"]) == ("error", "laplacebridge")
    assert event["message"] == "A batch was not counted: %s"


def test_requests_that_never_cease_do_not_keep_the_first_waiting():
    batcher = Batcher(Counting(), max_rows=10**6, max_waiting=10**6)

    async def flood():
        start = time.monotonic()
        first = asyncio.ensure_future(answered(batcher))
        others = []
        while not first.done() and time.monotonic() - start < 3:
            others.append(asyncio.ensure_future(answered(batcher)))
            await asyncio.sleep(0)  # one more in each round of the loop
        waited = time.monotonic() - start
        assert all(await asyncio.gather(first, *others))
        return waited

    batcher.start()
    waited = asyncio.run(flood())
    batcher.close()
    assert waited < 1.5


class Asleep(Batcher):
    """Whose model has not heard yet that requests wait."""

    def _work(self, before):
        pass


def test_a_request_does_not_put_off_a_batch_that_is_due():
    batcher = Asleep(Counting())

    async def ask():
        first = asyncio.ensure_future(answered(batcher))
        for _ in range(10):  # all that has arrived is read
            await asyncio.sleep(0)
        due = batcher._gathering.until
        second = asyncio.ensure_future(answered(batcher))
        await asyncio.sleep(0)
        after = len(batcher), batcher._gathering.until
        first.cancel(), second.cancel()
        return due, after

    batcher.start()
    due, (waiting, after) = asyncio.run(ask())
    batcher.close()
    assert waiting == 2
    assert due == after == 0


def test_a_second_loop_is_answered_after_the_first_and_beside_it():
    batcher, right = Batcher(Counting()), []

    async def clients(thread):
        for _ in range(20):
            asked_for = [answered(batcher, 100.0 * thread + index) for index in range(8)]
            right.extend(await asyncio.gather(*asked_for))

    batcher.start()
    for _ in range(3):
        loop = asyncio.new_event_loop()
        assert loop.run_until_complete(answered(batcher))
        loop.close()  # while the next batch gathers
    threads = [
        # debugging refuses what one loop does to the futures of another
        threading.Thread(target=lambda n=n: asyncio.run(clients(n), debug=True))
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    batcher.close()
    assert right == [True] * 320


def test_what_is_not_started_or_closed_says_so_at_once_and_can_be_started_again():
    batcher = Batcher(Counting())
    with pytest.raises(RequestError, match="not running") as refused:
        asyncio.run(answered(batcher))
    assert refused.value.status == 503
    for _ in range(2):
        batcher.start()
        assert asyncio.run(answered(batcher))
        batcher.close()
        with pytest.raises(RequestError, match="not running"):
            asyncio.run(answered(batcher))


def test_collections_of_garbage_pass_over_what_stays(server):
    """Those of all that torch holds would take a tenth of a second each."""
    assert outputs_of(server.infer(asked(0.0), "slow"))["frozen"][0] > 10_000


def test_what_the_network_cannot_take_is_refused_and_the_rest_of_its_batch_answered(server):
    first = Together(server, [asked(0.5)], pause=0.2)  # the others gather behind it
    contents = [asked(0.01), asked(77), asked(0.02), asked(88), asked(0.03)]
    replies = Together(server, contents).wait()
    first.wait()
    assert [reply.status for reply in replies] == [200, 400, 200, 500, 200]
    assert "77 is more" in replies[1].json["error"]
    good = [outputs_of(replies[index])["slept"][0] for index in (0, 2, 4)]
    assert good == pytest.approx([0.01, 0.02, 0.03])
    failure = [entry for entry in server.log() if entry["event"] == "failure"]
    assert failure[0]["error"] == "ZeroDivisionError"
    assert any("slow_server.py" in place for place in failure[0]["places"])
    assert not any("secret" in line for line in server.lines)
    assert "secret" not in replies[3].json["error"]


def test_a_request_whose_time_is_over_gets_504_and_is_not_run(server):
    before = outputs_of(server.infer(asked(0.0), "slow"))["batches"][0]
    first = Together(server, [asked(1.5)], pause=0.2)
    late = server.infer(asked(0.9, timeout=100_000), "slow")  # microseconds
    assert late.status == 504
    assert first.replies == [None]  # it did not wait for the one before it
    assert first.wait()[0].status == 200
    after = outputs_of(server.infer(asked(0.0), "slow"))["batches"][0]
    assert after == before + 2
    assert server.infer(asked(3.0), "slow").status == 504  # the server's own limit


def test_a_body_that_does_not_come_gets_408(server):
    head = b"POST /v2/models/slow/infer HTTP/1.1\r\nHost: here\r\nContent-Length: 100\r\n\r\n{"
    assert b" 408 " in server.raw(head)


def test_a_full_queue_answers_503_and_when_to_come_again(tmp_path):
    with slow_server(tmp_path, max_waiting=3, max_batch=1) as server:
        replies = Together(server, [asked(0.8)] * 8, pause=0.02).wait()
        statuses = [reply.status for reply in replies]
        assert statuses.count(200) == 4  # one at work, three waiting
        assert statuses.count(503) == 4
        refused = replies[statuses.index(503)]
        assert refused.headers["retry-after"] == "1"
        assert "try again" in refused.json["error"]
        assert server.infer(asked(0.0), "slow").status == 200
        server.process.send_signal(signal.SIGINT)  # as good an end as SIGTERM
        assert server.process.wait(10) == 0


def test_sigterm_answers_what_is_in_flight_refuses_the_rest_and_exits_0(tmp_path):
    with slow_server(tmp_path) as server:
        idle = socket.create_connection(("127.0.0.1", server.port))
        waiting = Together(server, [asked(1.0)] * 20)
        time.sleep(0.5)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(OSError):  # noqa: PT011  (it is not accepted)
            socket.create_connection(("127.0.0.1", server.port), timeout=1)
        assert [reply.status for reply in waiting.wait()] == [200] * 20
        assert server.process.wait(10) == 0
        idle.close()
    assert server.log()[-1]["event"] == "ended"


def test_sigterm_has_a_limit_however_long_a_request_takes(tmp_path):
    with slow_server(tmp_path, shutdown_seconds=1) as server:
        Together(server, [asked(25.0)], pause=0.3)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(15) == 0
        assert time.monotonic() - start < 10
