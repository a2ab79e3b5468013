"""Devices: named wrongly, not here, and what of one a process may take."""

import pytest
import torch

from mnemic.errors import EnvironmentFailed, UsageError
from mnemic.models.device import Place, bound_memory, demand_device, known, name_of


@pytest.fixture
def two_gpus(monkeypatch):
    """A machine with two GPUs, as torch would tell."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)


@pytest.fixture
def no_gpu(monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)


def test_the_devices_of_a_machine(two_gpus):
    assert known() == ("cpu", "cuda", "cuda:0", "cuda:1")
    assert demand_device("cuda:1") == "cuda:1"
    with pytest.raises(EnvironmentFailed, match=r"sees only cpu, cuda, cuda:0, cuda:1 here"):
        demand_device("cuda:2")


def test_a_machine_without_a_gpu(no_gpu):
    assert known() == ("cpu",)
    assert demand_device("cpu") == "cpu"
    with pytest.raises(EnvironmentFailed, match=r"^device: read 'cuda', but torch .* only cpu"):
        demand_device("cuda", "device")


@pytest.mark.parametrize("name", ["cdua", "gpu", ""])
def test_a_name_that_torch_does_not_know(no_gpu, name):
    with pytest.raises(UsageError, match=f"--device: read '{name}', allowed: cpu") as caught:
        demand_device(name)
    assert ("did you mean 'cuda'?" in str(caught.value)) == (name == "cdua")


def test_what_has_no_numbers_is_nowhere_to_train(no_gpu):
    with pytest.raises(EnvironmentFailed, match="sees only cpu"):
        demand_device("meta")


def test_names(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", "called {}".format)
    assert name_of("cuda:1") == "called cuda:1"
    assert [name_of(kind) for kind in ("cpu", "mps")] == ["cpu", "mps"]


@pytest.mark.parametrize(
    ("name", "memory", "share"),
    [("cuda", 20.0, 0.25), ("cuda:1", 20.0, 0.25), ("cuda", 100.0, 1.0),
     ("cuda", float("inf"), None),
     ("cpu", 20.0, None)],
)  # fmt: skip
def test_memory_of_a_gpu_is_bounded(monkeypatch, name, memory, share):
    told = []
    whole = type("Properties", (), {"total_memory": 80 * 2**30})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: whole)
    monkeypatch.setattr(
        torch.cuda, "set_per_process_memory_fraction", lambda *given: told.append(given)
    )
    bound_memory(Place(name, memory))
    assert told == ([] if share is None else [(share, torch.device(name).index)])
