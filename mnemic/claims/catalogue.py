"""The claims that are reproduced, by name."""

from typing import Final

from mnemic.claims import (
    crowded,
    exact_swaps,
    functions,
    haystack,
    mad,
    recall,
    retrieval,
    storage,
    switching,
    tracking,
)
from mnemic.claims.claim import Claim
from mnemic.errors import Issue, UsageError, format_issue, nearest

MEMORY, ATLAS, REGRESSION, MIRAS = (
    "Zhong et al. 2025, Transformer as associative memory", "Behrouz et al. 2025, Atlas",
    "Wang, Shi and Fox 2025, Test-time regression", "Behrouz et al. 2025, Miras",
)  # fmt: skip

CLAIMS: Final = (
    Claim("retrieval-snr",
          "SNR⁻¹ of retrieval is N/d for a linear kernel, N/(2d) for relu, "
          "N exp(−2(τ − 1)d/τ²) for exp and 5N/(d exp(2√d)) for SoLU",
          f"{MEMORY}, (7), section 2.2 and appendix A", retrieval.run,
          sizes="the paper measures nothing; 64 draws of 256 pairs at each of five sizes",
          specs=("linear-attention", "attention-unnormalised", "solu-attention")),
    Claim("exact-swaps",
          "with keys nearly at right angles and integer rounding n states are followed through any "
          "number of swaps, without training", f"{MEMORY}, theorem 1", exact_swaps.run,
          sizes="10 states in 1024 channels, up to 1024 swaps",
          specs=("deltaformer-round", "deltaformer", "deltanet")),
    Claim("crowded-swaps",
          "with more states than channels a rounded kernel still follows swaps, and a linear one "
          "is severely degraded", f"{MEMORY}, figure 5", crowded.run,
          sizes="128 channels and up to 512 states with twice as many swaps, as published; nothing "
          "is trained: the read-out is the memory's own, and the nearest value counts",
          specs=("deltaformer-round", "deltaformer", "deltanet")),
    Claim("storage",
          "a matrix memory holds d_k independent pairs, with polynomial features C(d_k + p, p)",
          f"{ATLAS}, propositions 1 and 2", storage.run,
          sizes="the paper measures nothing; the best matrix for pairs up to twice as many",
          specs=("rls", "omega-linear")),
    Claim("switching",
          "on a switching process linear attention is worst, least squares is stuck after the "
          "switch, softmax attention adapts, local linear attention adapts best",
          f"{REGRESSION}, figure 2", switching.run,
          sizes="T = 256 and d = 64 as published; correlations of 0.5 and the bandwidth, which the "
          "paper does not tell, are ours",
          specs=tuple(method.spec for method in switching.METHODS)),
    Claim("recall",
          "least squares recalls 128 pairs in 64 dimensions at any length, linear attention does "
          "not; both recall 64", f"{REGRESSION}, section 6 and figure 3", recall.untrained,
          sizes="memories alone, with keys as far apart as 64 dimensions let them",
          specs=tuple(recall.SPECS.values())),
    Claim("recall-trained",
          "a layer with one convolution of two taps solves recall: both of as many pairs as "
          "dimensions, least squares alone of twice as many", f"{REGRESSION}, figure 3",
          recall.trained, seeds=2, trained=True,
          sizes="16 dimensions and 16 or 32 pairs for 64 and 64 or 128; 800 steps of 32 sequences",
          specs=tuple(recall.SPECS.values())),
    Claim("functions",
          "of five functions learned from examples, those that need earlier pairs are much harder",
          f"{ATLAS}, section 6.4 and figure 6", functions.run, seeds=2,
          sizes="d = 32 and T = 256, which the paper does not tell; the memory's own rule",
          specs=tuple(functions.SPECS.values())),
    Claim("swaps",
          "one layer of DeltaFormer follows swaps of five elements, a transformer does not",
          f"{MEMORY}, figures 4 and 8", tracking.swaps, seeds=2, trained=True,
          sizes="16 swaps as published; 1500 steps of 32 sequences, which the paper does not tell",
          specs=tracking.SPECS),
    Claim("curriculum",
          "swaps are learned better with lengths that are doubled than at full length at once",
          f"{MEMORY}, figure 6", tracking.curriculum, trained=True,
          sizes="4 to 32 swaps of three elements for 32 to 256 of five; 800 steps of 32 sequences",
          specs=(tracking.ROUND.spec,)),
    Claim("reachability",
          "one layer of DeltaFormer beats a transformer on reachability among 32 nodes",
          f"{MEMORY}, figure 7", tracking.reachability, trained=True,
          sizes="32 nodes as published; 1500 steps of 32 sequences, which the paper does not tell",
          specs=tracking.SPECS),
    Claim("mad",
          "on MAD's tasks YAAD is ahead of Titans and Transformers on average, Gated DeltaNet "
          "behind, and in memorisation the new memories gain most",
          f"{MIRAS}, table 8, and {ATLAS}, table 4", mad.run, trained=True,
          sizes="one layer of 32 channels and 500 steps (a first run of 300 had left the order of "
          "averages open); MONETA, MEMORA, OmegaNet and Atlas, at 0.2 to 10 s a step on "
          "this CPU, are left out",
          specs=tuple(mad.MODELS.values())),
    Claim("needles",
          "in longer texts than those of training DeltaNet loses a needle among words but not in "
          "one text over and over, Mamba2 loses both, Titans and YAAD keep most",
          f"{MIRAS}, table 3, and {ATLAS}, table 3", haystack.run, trained=True,
          sizes="texts of 64 tokens in training and of 32 to 256 asked for 2K to 16K; one layer of "
          "32 channels, 600 steps, three digits; MONETA, MEMORA, TTT and Atlas are left out",
          specs=tuple(haystack.MODELS.values())),
)  # fmt: skip


def about(spec: str) -> tuple[Claim, ...]:
    """Return the claims that run a packaged spec, or are about it."""
    return tuple(claim for claim in CLAIMS if spec in claim.specs)


def names() -> tuple[str, ...]:
    """Return the names of all claims."""
    return tuple(claim.name for claim in CLAIMS)


def find(name: str) -> Claim:
    """Return the claim of that name.

    Raises:
        UsageError: there is none (says the nearest).
    """
    for claim in CLAIMS:
        if claim.name == name:
            return claim
    issue = Issue("no such claim", "", name, names(), nearest(name, names()))
    raise UsageError(format_issue(issue))
