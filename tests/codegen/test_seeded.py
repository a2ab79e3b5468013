"""Numbers drawn from a seed leave no trace, neither in other streams nor on GPUs."""

import pytest
import torch

from mnemic import pipeline
from mnemic.codegen.support.seeded import reseed, seeded
from mnemic.codegen.support.selftest import checks
from mnemic.models.language_model import ModelOptions, build


@pytest.fixture
def many_gpus(monkeypatch):
    """A machine whose two GPUs fail as soon as anything touches them."""

    def touched(*_):
        raise AssertionError("a GPU was touched")

    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("get_rng_state", "set_rng_state", "manual_seed_all"):
        monkeypatch.setattr(torch.cuda, name, touched)


def test_a_seed_gives_torchs_own_numbers_and_the_stream_goes_on(many_gpus):
    expected = torch.randn(3, generator=torch.Generator().manual_seed(7))
    reseed(1)
    before = torch.get_rng_state()
    with seeded(7):
        assert torch.equal(torch.randn(3), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_fixture_sees_what_torch_does(many_gpus):
    with pytest.raises(AssertionError, match="touched"):
        torch.manual_seed(0)
    with pytest.warns(UserWarning, match="2 available devices"), \
            pytest.raises(AssertionError, match="touched"), torch.random.fork_rng():  # fmt: skip
        pass


def test_a_model_and_the_checks_of_a_rule_touch_no_gpu(many_gpus):
    compiled = pipeline.compile("linear-attention")
    build(ModelOptions(8, dim=8, layers=1), lambda dim, _: compiled.layer(dim), 3)
    assert all(check.passed for check in checks(compiled.module.Layer))


def test_a_device_of_its_own_is_forked_and_seeded(monkeypatch):
    told = []

    class Forked:
        def __enter__(self):
            told.append("forked")

        def __exit__(self, *_):
            told.append("back")

    def fork(devices, device_type):
        told.append((devices, device_type))
        return Forked()

    monkeypatch.setattr(torch.random, "fork_rng", fork)
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 5)
    monkeypatch.setattr(torch, "manual_seed", told.append)
    for name, index in (("cuda:1", 1), ("cuda", 5)):
        told.clear()
        with seeded(4, name):
            pass
        assert told == [([index], "cuda"), "forked", 4, "back"]
