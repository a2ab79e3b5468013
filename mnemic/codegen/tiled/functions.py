"""The support functions that a tile can compute: which axes they take, give and mix."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TileFunction:
    """The axes of a function's arguments and result, by letters of its own.

    ``mixes`` are letters along which entries depend on each other although the axis stays.
    ``extras`` are what the kernel passes beside quantities: ``live`` (the rows of axis t that are
    there), ``precision``, ``width:x`` (how many channels of axis x are there), ``rows`` and
    ``sources`` (the sizes of tiles of tokens, and of what windows read), ``window`` (its width),
    ``inside:x`` (which channels of axis x are there).
    """

    takes: tuple[str, ...]
    gives: str
    mixes: str = ""
    sums: str = ""
    """Letters over which it is a sum, so that blocks of them can be added up."""
    tops: str = ""
    """Letters over which it is a maximum."""
    searches: str = ""
    """Letters over which it is the root of a sum, to which every step of the search adds blocks."""
    extras: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    """Options passed on as constants, in order."""
    holds: tuple[int, int] = (0, 0)
    """Tiles that it holds beside its arguments and its result: so many as large as the result, and
    so many as the lesser side of it squared."""
    optional: int = 0
    """How many of the last arguments may be left out; with them it is called ``<name>_kept``."""


LIKE = "*"
"""Stands for any axes, those of the quantity itself."""


SYMMETRIC = "kk"
"""A symmetric matrix over key channels."""


def _table(**found: str | TileFunction) -> dict[str, TileFunction]:
    return {name: _read(entry) for name, entry in found.items()}


def _read(entry: str | TileFunction) -> TileFunction:
    if isinstance(entry, TileFunction):
        return entry
    takes, gives = entry.split("->")
    return TileFunction(tuple(part.strip() for part in takes.split(",")), gives.strip())


def _simplex(gives: str, searches: str) -> TileFunction:
    takes, extras = ("vk", "", *[LIKE] * 8), ("inside:v", "inside:k")
    return TileFunction(takes, gives, searches=searches, extras=extras)


def _entries() -> TileFunction:
    takes = ("vk", "", *[LIKE] * 9)
    return TileFunction(takes, "vk", extras=("inside:v", "inside:k"))


MATRICES = _table(
    recall=TileFunction(("vk", "k"), "v", sums="k"),
    entry_norm=TileFunction(("vk",), "", options=("power",)),
    largest=TileFunction(("vk",), "", tops="vk"),
    highest=TileFunction(("vk",), "", tops="vk", extras=("inside:v", "inside:k")),
    highest_of_rows=TileFunction(("vk",), "v", tops="k", extras=("inside:v", "inside:k")),
    highest_of_columns=TileFunction(("vk",), "k", tops="v", extras=("inside:v", "inside:k")),
    simplex=TileFunction(
        ("vk", ""), "vk", mixes="vk", extras=("width:v", "width:k"), options=("over",)
    ),
    ball=TileFunction(("vk", ""), "vk", mixes="vk"),
    scaled_to_norms=TileFunction(("vk", ""), "vk", mixes="vk", options=("axis",)),
    centred=TileFunction(
        ("vk",), "vk", mixes="vk", extras=("width:v", "width:k"), options=("axis",)
    ),
    newton_schulz=TileFunction(
        ("vk",), "vk", mixes="vk", extras=("precision",), options=("steps",), holds=(0, 2)
    ),
    pull=TileFunction(("vk", "v"), "k", sums="v"),
    norms_of=TileFunction(("vk",), "*", options=("axis",)),
    newton_schulz_vjp=TileFunction(
        ("vk", "vk"), "vk", mixes="vk", extras=("precision",), options=("steps",), holds=(2, 3)
    ),
    constant=TileFunction(("vk",), "", options=("value",)),
    sustained="vk, , vk -> vk",
    filled=TileFunction((LIKE,), LIKE, options=("value",)),
    total=TileFunction((LIKE,), LIKE),
    total_rows=TileFunction((LIKE,), LIKE),
    layer_norm=TileFunction((LIKE,), LIKE, mixes="v", extras=("width:v",)),
    layer_norm_vjp=TileFunction((LIKE, LIKE), LIKE, mixes="v", extras=("width:v",)),
    layer_norm_bend=TileFunction((LIKE, LIKE, LIKE), LIKE, mixes="v", extras=("width:v",)),
    symmetric=TileFunction((SYMMETRIC,), SYMMETRIC, mixes="k"),
)
"""Functions of whole matrices."""

ROOTS = _table(
    simplex_root=_simplex("", "vk"),
    simplex_root_of_rows=_simplex("v", "k"),
    simplex_root_of_columns=_simplex("k", "v"),
    simplex_entries=_entries(),
    simplex_entries_of_rows=_entries(),
    simplex_entries_of_columns=_entries(),
    inverse_link=TileFunction(("vk", *[LIKE] * 8), "vk", extras=("width:v", "width:k")),
)
"""Links that are roots, whose functions the kernels' module defines."""

MATRICES |= ROOTS

BACK = "pulled_back"
"""A function's gradient at one argument, by the function's name and the argument's place."""

MATRICES[BACK] = TileFunction(
    ("vk", "vk", *[LIKE] * 9), LIKE, mixes="vk", extras=("width:v", "width:k")
)


SIGNALS = ("error", "error_adjoint", "residual", "residual_vjp")
"""Functions of the spec's own error signal, which the kernels' module defines."""

CHUNK = MATRICES | _table(
    error="tv -> tv",
    error_adjoint="tv, tv -> tv",
    residual=TileFunction(("tt", "tv"), "tv", extras=("precision",)),
    residual_vjp=TileFunction(("tv", "tv", "tt"), "tv", extras=("precision",)),
    at_last_row=TileFunction(("k", "tk"), "tk", extras=("live",)),
    at_last=TileFunction(("", "t"), "t", extras=("live",)),
    later_sums="t -> t",
    earlier_sums="t -> t",
    later_rows="tk -> tk",
    earlier_rows="tk -> tk",
    between="tt -> t",
    outer="t, s -> ts",
    as_rows="k, tk -> tk",
    advanced="t -> t",
    advanced_rows=TileFunction(("tk",), "tk", extras=("precision",), options=("rows",)),
    without_last=TileFunction(("tk",), "tk", extras=("live",)),
    decayed_mix=TileFunction(("tt", "tk", "tk"), "tk", extras=("precision",)),
    mixed_back=TileFunction(("tt", "tk", "tk"), "tk", extras=("precision",)),
    norm="tv -> t",
    segments="t -> tt",
    products="t -> tt",
    running_product="t -> t",
    reach="t -> t",
    remain="t -> t",
    left_at_end=TileFunction(("t",), "t", extras=("live",)),
    reach_rows="tk -> tk",
    remain_rows="tk -> tk",
    delayed=TileFunction(("t",), "t", options=("fill",)),
    delayed_rows=TileFunction(("tk",), "tk", extras=("precision",), options=("fill",)),
    last=TileFunction(("t",), "", extras=("live",)),
    last_row=TileFunction(("tk",), "k", extras=("live",)),
    lower="ts -> ts",
    strictly_lower=TileFunction(("ts",), "ts", options=("rows",)),
    lower_ones="t -> tt",
    lower_ones_of="tk -> tt",
    level_mask="tl -> tt",
    level_sums="ts, tl -> tl",
    unit_lower_inverse=TileFunction(("tt",), "tt", extras=("precision",)),
    matrix_rows="ts, s -> t",
    vector_matrix="t, ts -> s",
    recall_row=TileFunction(("k", "tk"), "t", sums="k"),
    weigh="ts, s -> t",
    replaced_last=TileFunction(("tv", "v"), "tv", extras=("live",)),
    squared_norm="tk -> t",
    positive="t -> t",
    log_of="t -> t",
    distance="tv, tv -> t",
    column="t -> t",
    as_vector="t, tk -> tk",
    scores_after=TileFunction(
        ("tk", "sk", "ck"), "ts", sums="k", extras=("precision",), options=("rows",)
    ),
    scores_before=TileFunction(
        ("tk", "sk", "ck"), "ts", sums="k", extras=("precision",), options=("rows",)
    ),
    band=TileFunction(("tr",), "ts", extras=("sources", "window")),
    unbanded=TileFunction(("ts", "tr"), "tr", extras=("window",)),
    flat=TileFunction(("tr",), "s", extras=("sources", "window")),
    in_shape_of=TileFunction(("s", "tr"), "tr", extras=("window",)),
    spread_rows=TileFunction(
        ("ts",), "uw", extras=("precision", "sources"), options=("targets", "sources")
    ),
    block_sums=TileFunction(
        ("uw",), "ts", extras=("precision", "rows"), options=("targets", "sources")
    ),
    innovation_factor=TileFunction(("tk", "tk", "t"), "tt", extras=("precision",), optional=1),
    solved=TileFunction(("tt", "tk"), "tk", extras=("precision",)),
    solved_back=TileFunction(("tt", "tk"), "tk", extras=("precision",)),
    cholesky_vjp=TileFunction(("tt", "tt"), "tt", extras=("precision",)),
    diagonal_of="tt -> t",
    shrunk=TileFunction(
        (SYMMETRIC, "tk", "t"), SYMMETRIC, mixes="k", extras=("live", "precision"), optional=1
    ),
    conjugated=TileFunction(
        ("tk", "tk", "tt", SYMMETRIC, "tk", "t"),
        "tk",
        mixes="k",
        extras=("precision",),
        options=("tolerance", "iterations"),
    ),
    running_maximum="t, t,  -> t",
    stable_mix="t, t, t -> tt",
    stable_reach="t, , t -> t",
    maximum_share="t, t, t -> tt",
    repeat=TileFunction(("t",), "s", extras=("sources",), options=("times",)),
    run_sums=TileFunction(("s",), "t", extras=("rows",), options=("times",)),
    repeat_rows=TileFunction(("tk",), "sk", extras=("precision", "sources"), options=("times",)),
    token_sums=TileFunction(("sk",), "tk", extras=("precision", "rows"), options=("rows",)),
    delayed_by=TileFunction(("tk",), "tk", extras=("precision",), options=("rows",)),
    row_mix=TileFunction(("ts", "sk", "ck"), "tk", extras=("precision", "window")),
    row_mix_back=TileFunction(("ts", "tk", "ck"), "sk", extras=("precision", "window")),
)
"""Functions of rows of a chunk."""

TOKEN = MATRICES | _table(
    outer="v, k -> vk",
    squared_norm="k -> ",
    positive=" -> ",
    log_of=" -> ",
    distance="v, v -> ",
    recall_row=TileFunction(("k", "k"), "", sums="k"),
    as_vector=", k -> k",
    kalman_gain=TileFunction((SYMMETRIC, "k", "k", ""), "k", mixes="k", optional=1),
    downdated=TileFunction((SYMMETRIC, "k", "k", ""), SYMMETRIC, mixes="k", optional=1),
    ridge_solved=TileFunction((SYMMETRIC, "k", "k"), "k", mixes="k"),
    recall_rows=TileFunction(("vk", "rk"), "rv", sums="k", extras=("precision",)),
    pull_rows=TileFunction(("vk", "rv"), "rk", sums="v", extras=("precision",)),
    appended=TileFunction(("r", ""), "r", extras=("width:r",)),
    appended_row=TileFunction(("rk", "k"), "rk", extras=("width:r",)),
    rotated=TileFunction(("k", "k", ""), "k", mixes="k", extras=("width:k",)),
)
"""Functions of one token."""

ROW_LOCAL = ("features", "turned", "squared_norm", "layer_norm", "log_of", "positive")
"""Functions that take each token by itself: PyTorch can compute them before a kernel."""
