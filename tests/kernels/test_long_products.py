"""Products on tiles whose sums are longer than a warp should hold."""


def in_parts() -> float:
    """How far a product of 32 summands in two parts is from PyTorch's."""
    import samples
    import torch

    torch.manual_seed(0)
    x, y = torch.randn(16, 32), torch.randn(32, 32)
    found = torch.full((16, 32), float("nan"))
    samples.long_product_kernel[(1,)](x, y, found, 16)
    return float((found - x.double() @ y.double()).abs().max())


def test_a_long_sum_in_parts_is_the_sum(interpreter) -> None:
    assert 0 < interpreter(in_parts) < 1e-5
