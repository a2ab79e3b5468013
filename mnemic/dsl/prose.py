"""What the page of the language says beside its tables."""

INTRODUCTION = """
# The language

A spec describes one memory: a YAML file that says what the memory optimises, never how it is run.
This page is generated from the models that read a spec
(`pytest tests/dsl/test_reference.py --regenerate` writes it), and the tests derive every example on
it. `mnemic check FILE` reports what is wrong with a spec and where; `mnemic derive FILE` prints its
rule; `mnemic schema` gives the JSON Schema for an editor. [notation.md](notation.md) explains the
letters, [layer.md](layer.md) the layer that a spec compiles to, [block.md](block.md) the block
around it.

One head has keys and queries k, q of size d_k, values v of size d_v, and a feature map φ of size D.
The memory is a function M(W, ·):

    ŷ = M(W, φ(k))           prediction
    e = ∂ℓ(ŷ, v)/∂ŷ          error signal of the inner loss ℓ
    y_t = M(W_t, φ(q_t))     read-out

Every step solves, exactly or by steps of an optimizer,

    W_t = argmin_W  Σ_{i = t−c+1 … t} γ_i ℓ(M(W, φ(k_i)), v_i)  +  Ret(W, W_{t−1})

where Ret is the retention. Every step is written in one normal form, with momentum θ, rate η and
decay α: a dual state A, and a link from A back to W, which follows from the retention:

    G_t = Σ_i γ_i ∇_W ℓ(M(W_ref, φ(k_i)), v_i)
    S_t = θ_t S_{t−1} − η_t G_t            without momentum S_t = −η_t G_t
    A_t = α_t ∘ B_{t−1} + O(S_t)           O: identity, Newton–Schulz, or a step entry by entry
    W_t = link(A_t)

W_ref is the memory at which gradients are taken: the last one, or that of
[the anchor](#the-anchor). B is A itself in the view `ftrl`, and the mirror image of W in the view
`learning-retaining`.

A bare word stands for `{kind: word}`: `bias: l2` is `bias: {kind: l2}`. Where an option implies the
kind, `kind` may be left out: `{expr: …}` is `{kind: expr, expr: …}`. An option that is left out
takes its default, an axis its plainest kind. An unknown option is an error, which names its place
and the nearest option that exists. `extends: NAME` (or a path) starts from another spec, into which
this one is merged.
"""

COEFFICIENTS = """
A number, an expression, a word, or a mapping with `from`. One with `from` is an argument of the
operator, of shape [B, T, H], or with a channel axis after H. It is passed in natural units; decays
are passed as their natural logarithm, such as `log_alpha`. An expression may name other
coefficients, the head `h` of `H` heads and the step `t`: RetNet's decay is `1 - 2**(-5 - h)`.
Define coefficients of your own, which expressions may name, under `coefficients` at the top level.
"""

EXPRESSIONS = """
## Expressions

The grammar is closed: numbers, the place's own symbols, operators and named functions. Nothing is
evaluated as Python.

| place | symbols |
| --- | --- |
| `bias: {expr: …}` | `e` = ŷ − v, `y` = ŷ, `v` of a coordinate, or `n` = ‖ŷ − v‖; coefficients |
| `features: {expr: …}`, activations | `x` |
| `features: {kernel: …}` | `s` = k·q |
| `memory` of kept pairs | `s`, `d2` = ‖k − q‖²; coefficients in a similarity |
| `retention: {local: {bregman: …}}` | `w`; coefficients |
| `retention: {local: {f-divergence: …}}` | `x` = w/w′; coefficients |
| `retention: {link: …}` | `a`, `nu` = ‖A‖ₚ; coefficients |
| `keys` | `k`, roles listed before it, coefficients; `v` in the value |
| coefficients | other coefficients, `h`, `H`, `t` |
"""

CLASSES = """
## Classes

The class of a rule follows from its derivatives, never from names, and decides how it can be run in
parallel. `mnemic derive` names it and gives the reason.

| class | where | exact parallel form |
| --- | --- | --- |
| additive | e does not depend on ŷ | decayed sums, chunk by chunk |
| affine | ∂e/∂ŷ is constant, and the same for all value channels | a WY transform, chunk by chunk |
| residual | any other e, a memory linear in the errors | a triangular system in a chunk's errors |
| frozen | gradients at the memory of the last chunk's end | additive inside a chunk |
| kernelised | a kernel without a finite map | kept keys: attention, or a triangular solve |
| second-order | the exact minimiser over the past | running moments and a solve |
| nonparametric | similarity weights | attention, or a small system per query |
| sequential | none of these | token by token |

A step is a contraction while η Σ γ sup ℓ″ ‖φ‖² < 2; `mnemic derive` prints the bound of a rule and
`mnemic check` warns where a layer's initial coefficients exceed it.
"""
