"""Random numbers from a seed, without a trace in the streams of numbers that others draw from."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def seeded(seed: int, device: str = "cpu") -> Iterator[None]:
    """Draw from a seed until the end of the block, on the CPU and on a device.

    After it both streams go on as if nothing had been drawn. With ``cpu`` no GPU is touched:
    torch's own `fork_rng` and `manual_seed` would set up every one of a machine.
    """
    place = torch.device(device)
    if place.type == "cpu":
        with torch.random.fork_rng(devices=[]):
            reseed(seed)
            yield
        return
    index = torch.accelerator.current_device_index() if place.index is None else place.index
    with torch.random.fork_rng(devices=[index], device_type=place.type):
        reseed(seed, device)
        yield


def reseed(seed: int, device: str = "cpu") -> None:
    """Seed the stream of the CPU, and those of all GPUs where the device is one."""
    if torch.device(device).type == "cpu":
        torch.default_generator.manual_seed(seed)
    else:
        torch.manual_seed(seed)
