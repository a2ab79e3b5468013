"""A memory of every class in a person's own module: copied, saved, traced, shared, transformed."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator

import pytest
import torch
from packaged import FACTS
from small_models import one_of_each
from torch import Tensor, distributed, nn
from torch._dynamo.exc import Unsupported
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import mnemic

DIM = 16


class Own(nn.Module):
    """A module that somebody wrote around a memory layer."""

    def __init__(self, spec: str) -> None:
        super().__init__()
        self.before = nn.Linear(DIM, DIM)
        self.memory = mnemic.compile(spec).layer(DIM)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.memory(torch.tanh(self.before(x)))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """``each`` runs over a spec of every class and every kind of hybrid."""
    if "each" in metafunc.fixturenames:
        metafunc.parametrize("each", one_of_each())


@pytest.fixture
def own(each: str) -> Own:
    torch.manual_seed(0)
    return Own(each).double()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 11, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def gradients(module: nn.Module, y: Tensor) -> dict[str, Tensor]:
    """The gradients of a loss by the parameters' names."""
    found = torch.autograd.grad(y.sin().sum(), list(module.parameters()))
    return dict(zip(dict(module.named_parameters()), found, strict=True))


def test_a_compiled_rule_is_shown_in_a_line() -> None:
    rule = mnemic.compile("deltanet")
    assert repr(rule) == f"Compiled('deltanet', folder={str(rule.folder)!r})"


def test_a_copy_goes_its_own_way(own: Own, x: Tensor) -> None:
    expected = own(x)
    copied = copy.deepcopy(own)
    assert copied(x).equal(expected)
    gradients(copied, copied(x))
    with torch.no_grad():
        for parameter in copied.parameters():
            parameter.mul_(1.5)
    assert not copied(x).allclose(expected)
    assert own(x).equal(expected)


def test_pickle_and_state_dict_give_it_back(each: str, own: Own, x: Tensor) -> None:
    expected = own(x)
    assert pickle.loads(pickle.dumps(own))(x).equal(expected)
    file = io.BytesIO()
    torch.save(own.state_dict(), file)
    file.seek(0)
    torch.manual_seed(9)
    other = Own(each).double()
    assert not other(x).allclose(expected)
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other(x).equal(expected)


def test_it_is_made_without_memory_and_filled_later(each: str, own: Own, x: Tensor) -> None:
    """As libraries make large models: whatever a layer knows is in its state_dict."""
    with torch.device("meta"):
        other = Own(each).double()
    other.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*other.parameters(), *other.buffers()):
            tensor.fill_(float("nan"))
    other.load_state_dict(own.state_dict())
    assert other(x).equal(own(x))


def test_autocast_is_near(own: Own, x: Tensor) -> None:
    own, x = own.float(), x.float()
    expected = own(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = own(x)
    assert (y - expected).norm() < 0.1 * expected.norm()
    assert all(g.isfinite().all() for g in gradients(own, y).values())


def test_checkpointing_gives_the_same_gradients(own: Own, x: Tensor) -> None:
    expected = gradients(own, own(x))
    found = gradients(own, checkpoint(own, x, use_reentrant=False))
    torch.testing.assert_close(found, expected)


@pytest.fixture
def alone() -> Iterator[None]:
    """A group of one process."""
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("alone")
def test_shared_by_processes_it_steps_as_alone(own: Own, x: Tensor) -> None:
    """DDP refuses the second step where a parameter had no gradient in the first."""
    shared = DistributedDataParallel(copy.deepcopy(own))
    for module in (own, shared):
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
        for _ in range(2):
            optimizer.zero_grad()
            module(x).sin().sum().backward()
            optimizer.step()
    torch.testing.assert_close(shared.module.state_dict(), own.state_dict())


@pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")  # vmap's fallback
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # jvp's own formulas
def test_transforms_agree_with_autograd(own: Own, x: Tensor) -> None:
    """Gradients of each row by the parameters, and a derivative along a direction."""
    given = dict(own.named_parameters())

    def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(own, parameters, (row[None],))
        return y.sin().sum()

    found = torch.func.vmap(torch.func.grad(loss), (None, 0))(given, x)
    for index, row in enumerate(x):
        expected = gradients(own, own(row[None]))
        torch.testing.assert_close({n: g[index] for n, g in found.items()}, expected)
    along = {n: torch.randn_like(p) for n, p in given.items()}
    moved = torch.func.jvp(lambda p: loss(p, x[0]), (given,), (along,))[1]
    expected = gradients(own, own(x[:1]))
    torch.testing.assert_close(moved, sum((expected[n] * along[n]).sum() for n in given))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.torch.jit.script_method. is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_traced_it_is_as_written(each: str, own: Own, x: Tensor) -> None:
    """In one graph, but for memories whose segments end where carried positions say.

    With inductor's decompositions: plain ``aot_eager`` of torch 2.13 gives softplus' gradient other
    strides as it traces than as it runs, and fails in a view (yaad).
    """
    torch._dynamo.reset()
    whole = "hybrid context" not in FACTS[each]["traits"]
    if not whole:
        with pytest.raises(Unsupported, match="they decide where segments of a memory"):
            torch.compile(own, backend="eager", fullgraph=True)(x)
    traced = torch.compile(own, backend="aot_eager_decomp_partition", fullgraph=whole)
    expected = gradients(own, own(x))
    torch.testing.assert_close(traced(x), own(x))
    torch.testing.assert_close(gradients(own, traced(x)), expected)
