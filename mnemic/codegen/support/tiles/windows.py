"""Chunks whose tokens have several rows: windows slot by slot, W rows a token."""

import triton
import triton.language as tl

from .products import dot, exact, turned


@triton.jit
def _belongs(S: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    """Return whether each of S rows belongs to each of C tokens of W rows: [S, C]."""
    return tl.arange(0, S)[:, None] // W == tl.arange(0, C)[None, :]


@triton.jit
def repeat(x, S: tl.constexpr, TIMES: tl.constexpr):
    """Repeat every number several times: [C] → [S]."""
    return tl.sum(tl.where(_belongs(S, x.shape[0], TIMES), x[None, :], 0.0), 1)


@triton.jit
def run_sums(x, C: tl.constexpr, TIMES: tl.constexpr):
    """Add up the numbers of each token's rows: [S] → [C]."""
    return tl.sum(tl.where(_belongs(x.shape[0], C, TIMES), x[:, None], 0.0), 0)


@triton.jit
def repeat_rows(x, PRECISION: tl.constexpr, S: tl.constexpr, TIMES: tl.constexpr):
    """Repeat every row several times: [C, K] → [S, K]."""
    return exact(_belongs(S, x.shape[0], TIMES).to(x.dtype), x, PRECISION)


@triton.jit
def token_sums(x, PRECISION: tl.constexpr, C: tl.constexpr, ROWS: tl.constexpr):
    """Add up the rows of each token: [S, K] → [C, K]."""
    return exact(tl.trans(_belongs(x.shape[0], C, ROWS).to(x.dtype)), x, PRECISION)


@triton.jit
def spread_rows(
    x, PRECISION: tl.constexpr, S: tl.constexpr, TARGETS: tl.constexpr, SOURCES: tl.constexpr
):
    """Spread every entry to a block: [C, C] → [C or S, C or S]."""
    C: tl.constexpr = x.shape[0]
    if TARGETS > 1:
        x = exact(_belongs(S, C, TARGETS).to(x.dtype), x, PRECISION)
    if SOURCES > 1:
        x = exact(x, tl.trans(_belongs(S, C, SOURCES).to(x.dtype)), PRECISION)
    return x


@triton.jit
def block_sums(
    x, PRECISION: tl.constexpr, C: tl.constexpr, TARGETS: tl.constexpr, SOURCES: tl.constexpr
):
    """Add up the entries of each block: [C or S, C or S] → [C, C]."""
    if TARGETS > 1:
        x = exact(tl.trans(_belongs(x.shape[0], C, TARGETS).to(x.dtype)), x, PRECISION)
    if SOURCES > 1:
        x = exact(x, _belongs(x.shape[1], C, SOURCES).to(x.dtype), PRECISION)
    return x


@triton.jit
def delayed_by(x, PRECISION: tl.constexpr, ROWS: tl.constexpr):
    """Give each row the one ``ROWS`` before, zero to the first ones: [S, K] → [S, K]."""
    at = tl.arange(0, x.shape[0])
    return exact((at[:, None] == at[None, :] + ROWS).to(x.dtype), x, PRECISION)


# -- weights of windows ----------------------------------------------------------------------


@triton.jit
def _column(x, j):
    """Cut out one column: [C, R] → [C]."""
    return tl.sum(tl.where((tl.arange(0, x.shape[1]) == j)[None, :], x, 0.0), 1)


@triton.jit
def _slots(C: tl.constexpr, S: tl.constexpr):
    """Compute s − t, which slot of token t's window source s is: [C, S]."""
    return tl.arange(0, S)[None, :] - tl.arange(0, C)[:, None]


@triton.jit
def band(weights, S: tl.constexpr, WIDTH: tl.constexpr):
    """Lay weights of windows out as a matrix, row t from source t on: [C, R] → [C, S]."""
    slot = _slots(weights.shape[0], S)
    found = tl.zeros((weights.shape[0], S), weights.dtype)
    for j in range(WIDTH):
        found = tl.where(slot == j, _column(weights, j)[:, None], found)
    return found


@triton.jit
def unbanded(x, like, WIDTH: tl.constexpr):
    """Take each row's window out of a matrix, from source t on: [C, S] → [C, R]."""
    slot, column = _slots(x.shape[0], x.shape[1]), tl.arange(0, like.shape[1])[None, :]
    found = tl.zeros_like(like)
    for j in range(WIDTH):
        own = tl.sum(tl.where(slot == j, x, 0.0), 1)
        found = tl.where(column == j, own[:, None], found)
    return found


@triton.jit
def flat(weights, S: tl.constexpr, WIDTH: tl.constexpr):
    """Lay all rows' weights one after another: [C, R] → [S]."""
    at = tl.arange(0, S)
    found = tl.zeros((S,), weights.dtype)
    for j in range(WIDTH):
        found = tl.where(at % WIDTH == j, repeat(_column(weights, j), S, WIDTH), found)
    return found


@triton.jit
def in_shape_of(x, like, WIDTH: tl.constexpr):
    """Put numbers laid flat back in their slots: [S] → [C, R]."""
    at, column = tl.arange(0, x.shape[0]), tl.arange(0, like.shape[1])[None, :]
    found = tl.zeros_like(like)
    for j in range(WIDTH):
        own = run_sums(tl.where(at % WIDTH == j, x, 0.0), like.shape[0], WIDTH)
        found = tl.where(column == j, own[:, None], found)
    return found


# -- decay by channel ------------------------------------------------------------------------


@triton.jit
def _token(A: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    """Return each row's token, [A, 1]: the row's own number where there is one row a token."""
    token = tl.arange(0, A) if A == C else tl.arange(0, A) // W
    return token[:, None]


@triton.jit
def slot_scores(q, k, log_decay, AHEAD: tl.constexpr, PRECISION: tl.constexpr, W: tl.constexpr):
    """Compute Σ_κ q_aκ k_sκ Π decay_iκ over tokens i after s's, up to a's (less ``AHEAD``).

    [C or S, K], [S, K], [C, K] → [C or S, S]; from the last token's keys on, so that no exponent is
    positive.
    """
    C: tl.constexpr = log_decay.shape[0]
    token, row = _token(q.shape[0], C, W), tl.arange(0, C)[:, None]
    of_source = tl.arange(0, k.shape[0])[:, None] // W
    exponent, after = tl.zeros_like(q), tl.zeros((q.shape[1],), q.dtype)
    scores = tl.zeros((q.shape[0], k.shape[0]), q.dtype)
    for back in range(0, C):
        j = C - 1 - back
        exponent += tl.where(token > j + AHEAD, after[None, :], 0.0)
        left = tl.where(token >= j + AHEAD, q * tl.exp(exponent), 0.0)
        scores += dot(left, tl.trans(tl.where(of_source == j, k, 0.0)), PRECISION)
        after = tl.sum(tl.where(row == j, log_decay, 0.0), 0)
    return scores


@triton.jit
def row_mix(scores, u, log_decay, PRECISION: tl.constexpr, W: tl.constexpr):
    """Compute Σ_s scores_as u_sκ Π decay_iκ over the tokens i after s's, up to a's:
    [C or S, S], [S, K] → [C or S, K]."""
    return _row_mixed(scores, u, log_decay, 0, PRECISION, W)


@triton.jit
def row_mix_back(scores, x, log_decay, PRECISION: tl.constexpr, W: tl.constexpr):
    """Compute Σ_a scores_as x_aκ Π decay_iκ over the tokens i after s's, up to a's:
    [C or S, S], [C or S, K] → [S, K]."""
    return _row_mixed(scores, x, log_decay, 1, PRECISION, W)


@triton.jit
def _row_mixed(scores, x, log_decay, BACK: tl.constexpr, PRECISION: tl.constexpr, W: tl.constexpr):
    """Add up sources s, or with ``BACK`` targets a, decayed, from the last token's sources on."""
    C: tl.constexpr = log_decay.shape[0]
    token, row = _token(scores.shape[0], C, W), tl.arange(0, C)[:, None]
    of_source = tl.arange(0, scores.shape[1])[:, None] // W
    out = tl.zeros((scores.shape[1 if BACK else 0], x.shape[1]), x.dtype)
    exponent = tl.zeros((scores.shape[0], x.shape[1]), x.dtype)
    after = tl.zeros((x.shape[1],), x.dtype)
    for back in range(0, C):
        j = C - 1 - back
        exponent += tl.where(token > j, after[None, :], 0.0)
        if BACK:
            left = tl.where(token >= j, x * tl.exp(exponent), 0.0)
            out += tl.where(of_source == j, dot(turned(scores, PRECISION), left, PRECISION), 0.0)
        else:
            mixed = dot(scores, tl.where(of_source == j, x, 0.0), PRECISION)
            out += tl.where(token >= j, tl.exp(exponent) * mixed, 0.0)
        after = tl.sum(tl.where(row == j, log_decay, 0.0), 0)
    return out


# -- one token -------------------------------------------------------------------------------


@triton.jit
def recall_rows(memory, x, PRECISION: tl.constexpr):
    """Compute M x for every row: [V, K], [R, K] → [R, V]."""
    return dot(x, memory, PRECISION)


@triton.jit
def pull_rows(memory, x, PRECISION: tl.constexpr):
    """Compute Mᵀ x for every row: [V, K], [R, V] → [R, K]."""
    return dot(x, turned(memory, PRECISION), PRECISION)
