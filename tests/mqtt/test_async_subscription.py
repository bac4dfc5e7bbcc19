"""The asynchronous face: what it hands out, what a cancelled wait loses (nothing), and what it may hold."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path

import pytest

from fugu.contract.frames import SymbolFrame
from fugu.contract.topics import topic_of
from fugu.mqtt import AsyncSubscription, Broker, Link, Reading, Subscription, SymbolReading
from fugu_cli.demo.processes import start_broker
from tests.support.brokers import PATIENCE, Mosquitto, await_end, wait_until

TOPIC = topic_of("symbols", "home", "watch", "hr")


def frame(first: int, ticks: int = 2) -> bytes:
    return SymbolFrame(1, first - 1, first, bytes(ticks)).encode()


def readings_of(first: int, ticks: int = 2) -> list[Reading]:
    return [SymbolReading("watch", "hr", tick, 0) for tick in range(first, first + ticks)]


def run(broker: Mosquitto, test: Callable[[AsyncSubscription], Awaitable[None]], timeout: float | None = None) -> None:
    """Run a test with a subscription that is connected; its messages come from the test itself, when it wants them."""

    async def main() -> None:
        subscription = AsyncSubscription(broker.broker, fleet="home", timeout=timeout)
        async with asyncio.timeout(PATIENCE), subscription:
            while not subscription.link.connected:
                await asyncio.sleep(0.001)
            await test(subscription)

    asyncio.run(main())


async def turns(number: int = 20) -> None:
    """Let every other task go on a little."""
    for _ in range(number):
        await asyncio.sleep(0)


def from_a_thread(subscription: AsyncSubscription, *payloads: bytes) -> None:
    """Deliver as the network does."""
    thread = threading.Thread(target=lambda: [subscription._queue_message(TOPIC, payload) for payload in payloads])
    thread.start()
    await_end(thread)


def test_two_at_once_and_a_synchronous_one_get_the_same(broker: Mosquitto) -> None:
    address = broker.broker
    readings: list[list[Reading]] = [[], []]

    async def main(sender: Link) -> None:
        first, two = (AsyncSubscription(address, fleet="home") for _ in range(2))
        async with asyncio.timeout(PATIENCE), first, two:
            numbers = count(step=2)

            async def send() -> None:
                while True:
                    sender.publish(TOPIC, frame(next(numbers)))
                    await asyncio.sleep(0.01)

            async def read(subscription: AsyncSubscription, into: list[Reading]) -> None:
                async for reading in subscription:
                    into.append(reading)
                    if len(into) == 9:
                        return

            sending = asyncio.create_task(send())
            await asyncio.gather(read(first, readings[0]), read(two, readings[1]))
            sending.cancel()

    plain: list[Reading] = []
    sender = Link(address, client_id="sender")
    sender.start()
    wait_until(lambda: sender.connected)
    with Subscription(address, fleet="home") as synchronous:
        wait_until(lambda: synchronous.link.subscribed)
        asyncio.run(main(sender))
        while len(plain) < 9:
            reading = synchronous.wait(PATIENCE)
            plain.append(reading)
    sender.stop()
    for some in (*readings, plain):
        first = some[0].tick
        assert some == readings_of(first, 9)


def test_a_wait_that_is_cancelled_or_timed_out_loses_nothing(broker: Mosquitto) -> None:
    async def test(subscription: AsyncSubscription) -> None:
        for _ in range(3):
            waiting = asyncio.create_task(subscription.wait())
            await turns()
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await anext(subscription)
        from_a_thread(subscription, frame(0), frame(2))
        assert await anext(subscription) == readings_of(0)[0]
        got: list[Reading | None] = []
        waiting = asyncio.create_task(subscription.wait())
        await turns(1)
        waiting.cancel()  # while a reading is on its way to it
        with contextlib.suppress(asyncio.CancelledError):
            got.append(await waiting)
        while len(got) < 3:
            got.append(await anext(subscription))
        assert got == readings_of(0, 4)[1:]

    run(broker, test)


def test_an_iteration_ends_after_its_timeout_and_can_begin_again(broker: Mosquitto) -> None:
    async def test(subscription: AsyncSubscription) -> None:
        assert [reading async for reading in subscription] == []
        from_a_thread(subscription, frame(0), b"junk", frame(2))
        assert [reading async for reading in subscription] == readings_of(0, 4)
        assert subscription.rejected == {"unknown_schema": 1}
        assert subscription.messages == 3

    run(broker, test, timeout=0.05)


def test_several_tasks_may_wait_for_one_subscription(broker: Mosquitto) -> None:
    async def test(subscription: AsyncSubscription) -> None:
        tasks = [asyncio.create_task(subscription.wait()) for _ in range(4)]
        await turns()
        from_a_thread(subscription, frame(0), frame(2))
        got = await asyncio.gather(*tasks)
        assert sorted(got, key=lambda reading: reading.tick) == readings_of(0, 4)

    run(broker, test)


def test_leaving_ends_the_iteration_of_other_tasks(broker: Mosquitto) -> None:
    async def main() -> list[Reading]:
        async with AsyncSubscription(broker.broker, fleet="home") as subscription:

            async def read() -> list[Reading]:
                return [reading async for reading in subscription]

            task = asyncio.create_task(read())
            await turns()
            from_a_thread(subscription, frame(0))
        return await asyncio.wait_for(task, PATIENCE)

    assert asyncio.run(main()) == readings_of(0)


def test_other_tasks_go_on_while_messages_come_faster_than_they_are_read(broker: Mosquitto) -> None:
    async def test(subscription: AsyncSubscription) -> None:
        seen = 0

        async def tick() -> None:
            nonlocal seen
            while True:
                seen += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        from_a_thread(subscription, *(frame(2 * i) for i in range(50)), *[b"junk"] * 50, frame(100))
        assert [await anext(subscription) for _ in range(102)] == readings_of(0, 102)
        assert seen >= 100
        ticking.cancel()

    run(broker, test)


def test_a_blocked_loop_collects_one_call_however_many_messages_come(broker: Mosquitto) -> None:
    async def test(subscription: AsyncSubscription) -> None:
        await turns()
        calls: list[Callable[[], None]] = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(subscription._loop, "call_soon_threadsafe", calls.append)
            from_a_thread(subscription, *[b"junk"] * 50, frame(0))
        (call,) = calls
        call()
        assert await anext(subscription) == readings_of(0)[0]
        from_a_thread(subscription, frame(2))
        got = [await anext(subscription) for _ in range(3)]
        assert got == readings_of(0, 4)[1:]

    run(broker, test)


def test_a_network_thread_that_outlives_its_loop_does_no_harm(broker: Mosquitto) -> None:
    async def main() -> AsyncSubscription:
        async with AsyncSubscription(broker.broker, fleet="home") as subscription:
            return subscription

    subscription = asyncio.run(main())
    subscription._queue_message(TOPIC, frame(0))
    assert not subscription.rejected


@pytest.mark.long
def test_it_falls_back_to_mqtt_3_1_1_outside_of_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[threading.Thread] = []
    maintain = Link.maintain

    def noted(link: Link) -> None:
        threads.append(threading.current_thread())
        maintain(link)

    monkeypatch.setattr(Link, "maintain", noted)

    async def main(port: int) -> Reading:
        async with asyncio.timeout(PATIENCE), AsyncSubscription(Broker(port=port), fleet="home") as subscription:
            waiting = asyncio.create_task(anext(subscription))
            while not subscription.link.connected:
                await asyncio.sleep(0.01)
            assert subscription.link.protocol == "3.1.1"
            from_a_thread(subscription, frame(0))
            return await waiting

    with start_broker("embedded", tmp_path) as (port, _name):
        assert asyncio.run(main(port)) == readings_of(0)[0]
    assert len(threads) == 1
    assert threading.main_thread() not in threads
