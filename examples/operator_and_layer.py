"""A compiled rule as an operator and as a layer.

Run it with ``.venv/bin/python examples/operator_and_layer.py``.
"""

import torch

import mnemic

compiled = mnemic.compile("gated-deltanet")
print(*compiled.coefficients.values(), sep="\n")

# the operator: shapes [B, T, H, d]; gates travel as logarithms
torch.manual_seed(0)
q, k = (torch.nn.functional.normalize(torch.randn(2, 96, 4, 32), dim=-1) for _ in range(2))
v = torch.randn(2, 96, 4, 32)
gates = {"log_alpha": -0.1 * torch.rand(2, 96, 4), "eta": torch.rand(2, 96, 4)}
whole, _ = compiled(q, k, v, **gates)

# feeding a sequence in pieces through the state gives the same
first = {name: x[:, :64] for name, x in gates.items()}
rest = {name: x[:, 64:] for name, x in gates.items()}
head, state = compiled(q[:, :64], k[:, :64], v[:, :64], output_final_state=True, **first)
tail, _ = compiled(q[:, 64:], k[:, 64:], v[:, 64:], initial_state=state, **rest)
print("pieces against the whole:", float((torch.cat([head, tail], 1) - whole).abs().max()))

# the layer: [B, T, dim] in, [B, T, dim] out
layer = compiled.layer(dim=64)
print("layer:", tuple(layer(torch.randn(2, 96, 64)).shape))
