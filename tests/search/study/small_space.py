"""A space whose trials take a moment."""

SPACE = """\
mnemic: 1
name: tiny-space
bias: {choose: [dot, l2, {kind: huber, delta: {range: [0.1, 10], log: true}}]}
retention: {decay: {choose: [1, token, channel]}, order: {choose: [before, after]}}
optimizer: {rate: {choose: [token, learned]}}
block: {heads: 1, feed_forward: none, convolution: 0}
search:
  tasks: {memorisation: tiny}
  model: {dim: 8, layers: 1}
  training: {batch: 4, eval_size: 16, warmup: 2}
  constraints: none
  rungs: [{steps: 4, keep: 0.5}, {steps: 8, seeds: 2}]
  trials: 4
  start: []
"""
