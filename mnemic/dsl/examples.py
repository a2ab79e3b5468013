"""An example of each entry of a spec that has no kinds, with all its options; tests derive them.

A kind has its example in its class (``Family.example``).
"""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, str]] = {
    "": """
mnemic: 1
name: my-rule
title: A rule of one's own
source: {paper: "Nobody (2030), A Paper"}
features: elu
memory: linear
bias: l2
weights: uniform
window: 1
retention: {decay: token, order: before}
optimizer: {rate: token}
coefficients: {b: token}
keys: {write: "b*k"}
readout: {memory: after}
block: {heads: 4}
published: [{where: "(3)", rule: "W = alpha*W + v @ k.T", verdict: differs}]
notes: The write has a gate of its own.
""",
    "features.readout": """
features: {kernel: "exp(s)", readout: {kernel: "exp(s/2)", normalise: row}}
""",
    # -- retention
    "retention": """
retention:
  view: learning-retaining
  local: l2
  global: none
  decay: outer
  row_decay: {from: input, per: value}
  order: after
  constraint: none
  normalize: none
---
retention: {decay: channel, phase: {from: input, per: key}}
---
retention: {view: ftrl, link: "a/(1 + abs(a))"}
optimizer: {rate: 0.5}
""",
    "retention.global.elastic": """
retention: {global: {elastic: {l1: 0.1, l2: 0}}}
bias: l2
optimizer: {rate: token}
""",
    "retention.link": """
retention: {view: ftrl, link: {expr: "a/(1 + nu)", power: 2}}
optimizer: {rate: token}
""",
    # -- optimizer
    "optimizer": """
bias: l2
memory: mlp
optimizer:
  method: muon
  rate: {from: input, activation: sigmoid(x)/16}
  momentum: token
  rate_at: outside
  ns_steps: 5
  every: 16
  anchor: {chunk: 16}
---
bias: l2
optimizer: {method: adam, rate: 0.01, momentum: 0.9, beta2: 0.99, epsilon: 1e-8}
---
bias: l2
optimizer: {method: lion, rate: 0.01, momentum: 0.9, beta2: 0.99}
---
bias: l2
optimizer: {method: adagrad, rate: 0.1, epsilon: 1e-8}
---
bias: l2
optimizer: {rate: token, micro_steps: 2}
---
bias: l2
optimizer: {rate: token, inner_steps: 3}
---
bias: l2
window: all
optimizer: {method: batch, rate: 0.1, inner_steps: 2, from: origin}
---
bias: l2
window: all
retention: {global: {l2: 1}}
optimizer: {method: exact, solver: {kind: cholesky}}
""",
    "optimizer.rate": """
bias: {kind: lp, p: 3}
optimizer: {rate: {from: input, normalized: true}}
---
bias: l2
optimizer: {rate: {value: 0.5}}
---
bias: l2
retention: {decay: token}
optimizer: {rate: {expr: 1 - alpha}}
---
bias: l2
optimizer: {rate: {from: parameter, per: head, activation: sigmoid, init: 0.3}}
""",
    "optimizer.momentum": """
bias: l2
optimizer:
  method: momentum
  rate: token
  momentum: {from: input, per: head, activation: sigmoid, init: 0.9, on: write}
---
bias: l2
optimizer: {method: momentum, rate: 0.1, momentum: {value: 0.9}}
---
bias: l2
optimizer: {method: momentum, rate: token, momentum: {expr: 1 - eta}}
""",
    "optimizer.anchor": "bias: l2\noptimizer: {rate: 0.05, anchor: {chunk: 16}}",
    "optimizer.solver": """
bias: l2
window: all
retention: {global: {l2: 1}}
optimizer:
  method: exact
  solver: {kind: conjugate-gradients, tolerance: 1e-6, iterations: 30}
""",
    # -- keys, read-out, block
    "keys": """
bias: l2
coefficients: {b: token}
keys: {predict: own, erase: k, write: "b*k", value: "2*v"}
optimizer: {rate: token}
---
memory: nonparametric
bias: l2
window: all
weights: similarity
keys: {carry: own}
optimizer: {method: nonparametric, rate: token}
""",
    "keys.…": """
retention: {decay: channel}
keys: {write: {expr: 1 - alpha}}
---
bias: l2
keys: {predict: {own: true}}
optimizer: {rate: token}
""",
    "readout": """
features: elu
readout: {memory: before, normalizer: none, bonus: {from: parameter, per: key}}
---
features: elu
readout: {normalizer: sum}
---
retention: {decay: token}
readout: {levels: token, max_levels: 12}
""",
    "block": """
block:
  heads: 4
  key_dim: 32
  value_dim: 64
  groups: 2
  convolution: 4
  activation: silu
  query: relu
  key: "x**2"
  value: none
  qk_norm: none
  scale: 0.125
  output_norm: rms
  gate: sigmoid
  skip: true
  feed_forward: swiglu
  rotary: memory
---
block: {hybrid: gate, attention_window: 64, persistent: 4}
---
block: {hybrid: context, segment: 128}
""",
    "source": 'source: {paper: "Yang et al. (2024), Gated Delta Networks", where: "(10)"}',
    "published[…]": """
bias: l2
optimizer: {rate: token}
published:
  - where: "(3)"
    rule: W = W + eta*v @ k.T
    verdict: differs
    problem: L = norm(W @ k - v)**2/2; W = W - eta*gradient(L, W)
    corrected: W = W - eta*(W @ k - v) @ k.T
    note: The eraser is missing.
""",
    "coefficients": """
bias: l2
retention:
  decay: {from: input, per: key, activation: sigmoid, init: [0.9, 0.99]}
optimizer:
  rate: {expr: "b/(1 + h)"}
coefficients:
  b: {value: 0.5}
---
retention: {decay: {expr: "1 - 2**(-5 - h)"}}
""",
}
"""By place, or place and kind; several examples are parted by a line of three dashes."""
