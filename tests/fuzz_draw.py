"""Specs drawn at random: entries that rarely meet, in combinations that mostly have a meaning.

A spec is a function of its seed and number alone, so any one can be drawn again by itself.
"""

from random import Random
from typing import Any

from mnemic.dsl.load import load
from mnemic.errors import InvalidSpec

Spec = dict[str, Any]

COORDINATES = (
    "{a}*log(cosh({b}*e))", "{a}*sqrt(1+({b}*e)**2)", "{a}*abs(e)**2.5", "{a}*e**2/2",
    "{a}*(1-exp(-{b}*e**2))", "{a}*(softplus({b}*e)+softplus(-{b}*e))", "{a}*e*atan({b}*e)",
    "{a}*e**2/(1+e**2)", "{a}*e**2/(1+abs(e))", "{a}*y**2/4", "-{a}*v*tanh(y)",
    "{a}*sin({b}*e)/8", "-{a}*y*v", "{a}*log(1+exp({b}*y))", "{a}*max(abs(e)-{b},0)**2/2",
    "{a}*where(abs(e)<={b}, e**2/2, {b}*(abs(e)-{b}/2))", "{a}*y**2/2*sigmoid(v)",
    "{a}*(abs(e)-log(1+abs(e)))", "{a}*log(1+exp({b}*e))**2", "{a}*relu(1-v*y)", "{a}*abs(e)/4",
)  # fmt: skip
NORMS = (
    "{a}*log(1+{b}*n**2)", "{a}*max(n-{b}, 0)**2/2", "{a}*(sqrt(1+{b}*n**2)-1)", "{a}*n**2/2",
    "{a}*n**3/3", "{a}*(1-exp(-{b}*n**2))", "{a}*where(n<=1, n**2/2, n-1/2)",
)  # fmt: skip
"""Terms of losses, which are one of these or the sum of two."""

LOSSES = (
    "dot", "dot", "l2", "l2", "l2", "huber", "robust", {"kind": "lp", "p": 1, "smooth": 4},
    {"kind": "lp", "p": 1.5}, {"kind": "lp", "p": 3}, {"kind": "huber", "delta": "token"},
    {"kind": "huber", "delta": "token", "over": "norm"}, {"kind": "robust", "Delta": "token"},
    {"kind": "huber", "delta": "learned", "over": "mixture"},
)  # fmt: skip
ACTIVATIONS = (
    "sigmoid",
    "softplus(x)/2",
    "x**2/(1+x**2)",
    "(1+tanh(x))/2",
    "exp(-x**2)",
    "sigmoid(x)**2",
    "sigmoid(x)/2",
    "sigmoid(x)**0.25",
    "exp(-softplus(x))",
    "1/(1+x**2)",
)
DECAYS = (
    1.0, 0.9, "token", "token", "token", "channel", "channel", "learned", {"expr": "1 - eta/2"},
    {"expr": "1 - 1/(t+2)"}, {"expr": "1 - 2**(-5-h)"}, {"from": "parameter", "per": "key"},
    {"from": "input", "per": "value"}, {"expr": "sqrt(a)"}, {"expr": "1 - a/8"},
)  # fmt: skip
RATES = (
    "token", "token", "token", "token", "learned", 0, 0.3, {"expr": "1 - alpha"}, {"expr": "a/2"},
    {"expr": "sqrt(1 - alpha**2)"}, {"expr": "1/(t+2)"}, {"expr": "a*b"},
    {"from": "input", "activation": "exp"}, {"from": "input", "per": "value"},
)  # fmt: skip
THETAS = (
    "token", "learned", 0.5, 0, {"expr": "a"}, {"expr": "1 - eta"}, {"from": "input", "on": "write"}
)  # fmt: skip
FEATURES = (
    *["identity"] * 4, "elu", "elu", "relu", "softmax", {"expr": "x*sigmoid(x)"},
    {"expr": "exp(x)"}, {"expr": "max(x,0.2)"}, {"expr": "x**3 + x"}, {"expr": "cosh(x)"},
    {"kind": "polynomial", "degree": 2}, {"kind": "polynomial", "degree": 2, "mode": "power"},
    {"kind": "taylor", "order": 2}, {"kind": "dpfp", "nu": 1}, {"kind": "cosine", "length": 256},
    {"kind": "random", "features": 6},
)  # fmt: skip
KERNELS = (
    {"kind": "exponential", "scale": 0.5},
    "exponential",
    {"kernel": "1+tanh(s)"},
    {"kernel": "exp(s)", "normalise": "row"},
    {"kernel": "(1+s)**2/4"},
    {"kernel": "exp(s)", "readout": {"kernel": "exp(2*s)", "normalise": "row"}},
    {"kernel": "s*sigmoid(s)"},
)
GENERATORS = (
    "w*log(w)-w",
    "cosh(w)",
    "w**4/4+w**2/2",
    "w*log(w)+(1-w)*log(1-w)",
    "w**2/2 + exp(w)",
    "w**2/2 - log(w)",
)
DIVERGENCES = ("x**3/3", "chi2", "kl", "hellinger", "jensen-shannon", "x**2/2 + x*log(x)")
LINKS = ("tanh(a)", "sign(a)*sqrt(abs(a)+0.01)", "a/(1+nu)", "a/max(nu, 1)", "softplus(a)")
SIMILARITIES = ("exp(s)", "1+tanh(s)", "exp(-d2)", "1/(1+d2)", "max(s, 0)**2", "a + exp(s)")
ROLES: tuple[Spec, ...] = (
    {"predict": "own"}, {"erase": "a*k"}, {"write": "k*a"}, {"value": "c*v"}, {"erase": "own"},
    {"predict": "own", "erase": "own", "write": "own"}, {"predict": "own", "write": "predict"},
    {"predict": "own", "erase": "a*predict", "value": "c*v"}, {"write": {"expr": "1 - alpha"}},
)  # fmt: skip
MLP: Spec = {"kind": "mlp", "expansion": 1}
MEMORIES: tuple[Any, ...] = (
    {**MLP, "depth": 1, "norm": True, "residual": True},
    {**MLP, "depth": 1, "norm": False, "residual": False},
    {**MLP, "depth": 2, "norm": False},
    {**MLP, "depth": 2, "norm": True, "activation": "tanh"},
    {"kind": "glu", "expansion": 1, "residual": False},
    {"kind": "glu", "expansion": 2},
    {"chain": ["linear", {**MLP, "depth": 1}], "every": [1, 4]},
    {"chain": [{**MLP, "depth": 2}, {"kind": "glu", "expansion": 1}], "every": [1, 1]},
)
PRECISE = {"tolerance": 1e-13, "iterations": 200}
"""Of a solver, so that what it leaves over is not taken for a mistake."""

FAMILIES = (
    *["plain"] * 7, *["retained"] * 4, *["whole"] * 3, *["layers"] * 3, *["kernel"] * 3,
    *["diagonal"] * 2, *["through O"] * 2, "solved", "solved", "fitted", "levels", "anything",
)  # fmt: skip


def drawn(seed: int, number: int) -> Spec:
    """The spec of a number under a seed; most of those whose entries do not go together are drawn
    again, so that not much time is spent on refusals."""
    drawing = Drawing(Random(f"{seed} {number}"))
    found = drawing.spec()
    while not _goes_together(found) and drawing.now(0.85):
        found = drawing.spec()
    return found


def _goes_together(spec: Spec) -> bool:
    try:
        load(spec)
    except InvalidSpec:
        return False
    return True


class Drawing:
    """One spec in the making."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def one(self, *options: Any) -> Any:
        """One of several."""
        return self.random.choice(options)

    def now(self, share: float) -> bool:
        """True in that share of draws."""
        return self.random.random() < share

    def spec(self) -> Spec:
        """A point of the design space, in most cases of one family of them."""
        family = self.one(*FAMILIES)
        found: Spec = {"mnemic": 1, "name": "drawn", "bias": self.loss(), "features": "identity"}
        found["retention"] = {"decay": self.decay(), "order": self.one("before", "after")}
        found["optimizer"] = {"rate": self.rate()}
        self.stepped(found)
        if self.now(0.4):
            found["features"] = self.one(*FEATURES)
        if self.now(0.25):
            found["readout"] = self.readout()
        if self.now(0.15):
            found["block"] = {"qk_norm": "none"}
        families = {
            "retained": self.retained, "whole": self.whole, "layers": self.layers,
            "kernel": self.kernel, "diagonal": self.diagonal, "through O": self.through_o,
            "solved": self.solved, "fitted": self.fitted, "levels": self.levels,
        }  # fmt: skip
        chosen = [family] if family != "anything" else self.random.sample([*families], 2)
        for name in chosen:
            families.get(name, lambda found: None)(found)
        return self.named(found)

    # -- entries ----------------------------------------------------------------------------

    def loss(self) -> Any:
        """A named loss or an own one."""
        if self.now(0.5):
            return self.one(*LOSSES)
        terms = self.one(COORDINATES, COORDINATES, NORMS)
        found = self.random.sample(terms, self.one(1, 1, 2))
        numbers = ("0.1", "0.3", "0.5", "1", "1.3", "2")
        return {"expr": " + ".join(t.format(a=self.one(*numbers), b=self.one(*numbers))
                                   for t in found)}  # fmt: skip

    def decay(self) -> Any:
        """A decay, some of activations of their own."""
        if self.now(0.2):
            per = self.one("head", "head", "key")
            return {"from": "input", "per": per, "activation": self.one(*ACTIVATIONS)}
        return self.one(*DECAYS)

    def rate(self) -> Any:
        """A rate, some normalised, some of activations of their own."""
        if self.now(0.2):
            return {"from": "input", "activation": self.one(*ACTIVATIONS)}
        if self.now(0.15):
            return {"from": "input", "activation": "sigmoid", "normalized": True}
        return self.one(*RATES)

    def readout(self) -> Spec:
        """A read-out."""
        found: Spec = {"memory": self.one("after", "before", "anchor", "before")}
        if self.now(0.3):
            found["normalizer"] = self.one("sum", "max1")
        if self.now(0.2):
            found["bonus"] = {"from": "parameter", "per": "key"}
        return found

    def stepped(self, found: Spec) -> None:
        """Momentum, several steps, anchors, windows, weights, keys: each alone or with another."""
        optimizer, retention = found["optimizer"], found["retention"]
        if self.now(0.3):
            optimizer |= {"method": "momentum", "momentum": self.one(*THETAS)}
        if self.now(0.12):
            optimizer |= self.one({"micro_steps": 2}, {"inner_steps": 2}, {"inner_steps": 3})
        elif self.now(0.15):
            optimizer["anchor"] = {"chunk": self.one(2, 8)}
            retention["order"] = "after"
        elif self.now(0.08):
            optimizer["every"] = self.one(2, 3)
        elif self.now(0.15):
            found["window"] = self.one(2, 3, 5)
            gamma = self.one("token", "token", 0.5, {"expr": "1/(t+2)"}, {"expr": "a"})
            kind = self.one("window", "window", "token")
            if self.now(0.7):
                found["weights"] = {"kind": kind, "gamma": gamma}
        elif self.now(0.12):
            found["weights"] = self.one("token", {"kind": "token", "gamma": 0.5})
        elif self.now(0.2):
            found["keys"] = self.one(*ROLES)
            found["bias"] = self.one("l2", "l2", "dot", found["bias"])
        if self.now(0.08):
            retention["phase"] = self.one({"from": "input", "per": "key"}, "learned", 0.3)
        if self.now(0.1):
            retention["view"] = "ftrl"
        if self.now(0.06):
            row = self.one("token", {"from": "input", "per": "value"}, {"expr": "1 - c/2"})
            retention |= {"decay": "outer", "row_decay": row}

    # -- families ---------------------------------------------------------------------------

    def retained(self, found: Spec) -> None:
        """A retention of its own: generators, divergences, penalties, constraints, links."""
        kind, retention = self.one(*range(6)), found["retention"]
        if kind == 0:
            retention["local"] = self.one("kl", *({"bregman": g} for g in GENERATORS))
        elif kind == 1:
            retention["local"] = {"f-divergence": self.one(*DIVERGENCES)}
            retention["constraint"] = self.one("none", "simplex", self.simplex())
        elif kind == 2:
            lam = self.one(0.1, "learned", "token")
            retention["global"] = self.one(
                {"entropy": lam}, {"lq": 1.5}, {"elastic": {"l1": 0.05, "l2": lam}}, {"l2": lam}
            )
            if "l2" in retention["global"]:
                retention["decay"] = 1.0
        elif kind == 3:
            retention["constraint"] = self.one("simplex", self.simplex(), self.simplex(),
                                               {"kind": "ball", "radius": 0.5})  # fmt: skip
            retention["local"] = self.one("l2", "kl", {"bregman": self.one(*GENERATORS)})
        elif kind == 4:
            retention["link"] = self.one(*LINKS)
        else:
            retention["local"] = {"bregman": self.one(*GENERATORS)}
            retention["global"] = {"elastic": {"l1": 0.05, "l2": 0}}
        retention["view"] = self.one("ftrl", "learning-retaining")
        if self.now(0.3):
            found["optimizer"]["anchor"] = {"chunk": 8}
            retention["order"] = "after"

    def simplex(self) -> Spec:
        """A simplex."""
        return {"kind": "simplex", "over": self.one("all", "rows", "columns"),
                "scale": self.one(1, 2, "learned", {"expr": "1 + 1/(t+2)"})}  # fmt: skip

    def whole(self, found: Spec) -> None:
        """A step that is taken whole: implicit, a flow, or normalised."""
        for name in ("window", "weights", "keys"):
            if self.now(0.9):
                found.pop(name, None)
        rate = found["optimizer"].get("rate", "token")
        method = self.one("implicit", "implicit", "implicit", "flow", "normalized")
        if method == "normalized":
            told = rate if isinstance(rate, dict) and "expr" not in rate else {"from": "input"}
            found["optimizer"] = {"rate": {**told, "normalized": True}}
        else:
            plain = rate if not (isinstance(rate, dict) and "normalized" in rate) else "token"
            found["optimizer"] = {"method": method, "rate": plain}
        if self.now(0.5):
            found["bias"] = self.one("huber", {"kind": "lp", "p": 1, "smooth": 4}, "robust",
                                     {"kind": "lp", "p": 1.5}, {"expr": "sqrt(1 + n**2) - 1"},
                                     {"expr": "log(cosh(e))"})  # fmt: skip

    def layers(self, found: Spec) -> None:
        """A memory of layers, some of their steps through O or held."""
        found["memory"] = self.one(*MEMORIES)
        if isinstance(found["retention"].get("decay"), str) and self.now(0.8):
            found["retention"] = {**found["retention"], "decay": "token"}
            found["retention"].pop("row_decay", None)
        if self.now(0.4):
            self.through_o(found)
        if self.now(0.3):
            found["optimizer"]["anchor"] = {"chunk": self.one(4, 8)}
            found["retention"]["order"] = "after"
        if self.now(0.3):
            found["retention"]["normalize"] = self.one("rows", "columns")

    def kernel(self, found: Spec) -> None:
        """Features that a kernel alone tells."""
        found["features"] = self.one(*KERNELS)
        if self.now(0.25):
            found["memory"] = self.one(*MEMORIES)
            found["optimizer"]["anchor"] = {"chunk": self.one(2, 8)}
            found["retention"]["order"] = "after"

    def diagonal(self, found: Spec) -> None:
        """A memory of one number a channel."""
        found["memory"] = "diagonal"
        if self.now(0.4):
            found["retention"] |= {"phase": {"from": "input", "per": "key"},
                                   "decay": self.one("channel", DECAYS[11])}  # fmt: skip

    def through_o(self, found: Spec) -> None:
        """Newton-Schulz or Adam, now and then only, beside links and norms."""
        rate = self.one(
            found["optimizer"].get("rate", "token"), {"from": "input", "normalized": True}, "token"
        )
        method: Spec = {"method": "muon", "ns_steps": self.one(1, 2, 5)}
        if self.now(0.25):
            method = {"method": "adam"}
        elif self.now(0.3):
            method["rate_at"] = "outside"
        found["optimizer"] = {**method, "rate": rate}
        if self.now(0.5):
            found["optimizer"]["momentum"] = self.one(*THETAS)
        if self.now(0.3):
            found["optimizer"] |= self.one({"every": 3}, {"anchor": {"chunk": 4}}, {"every": 2})
            found["retention"]["order"] = "after"
        if self.now(0.25):
            found["retention"]["constraint"] = self.simplex()

    def solved(self, found: Spec) -> None:
        """The exact minimiser over the past, or full-batch descent."""
        method = self.one("exact", "exact", "batch")
        found["optimizer"] = {"method": method}
        if method == "batch":
            found["optimizer"] |= {"inner_steps": self.one(1, 2, 3), "from": "origin",
                                   "rate": self.one(0.1, "token", "learned")}  # fmt: skip
        elif self.now(0.4):
            found["optimizer"] |= {"solver": {"kind": "conjugate-gradients", **PRECISE}}
        found |= {"bias": self.one("l2", "l2", {"expr": "0.3*e**2"}), "window": "all"}
        gamma = self.one(
            0.9, "token", {"from": "input", "activation": "sigmoid(x)**0.25"}, {"expr": "sqrt(a)"}
        )
        fading = {"kind": "geometric", "gamma": gamma}
        found["weights"] = self.one("uniform", fading, "token", {**fading, "ridge": "constant"})
        found["retention"] = {"global": {"l2": self.one(0.1, 1, "learned")}}
        if not self.now(0.3):
            found.pop("keys", None)
        found.pop("readout", None)

    def fitted(self, found: Spec) -> None:
        """A regression over kept pairs."""
        found["memory"] = self.one(
            {"kind": "nonparametric", "similarity": self.one(*SIMILARITIES)},
            {"kind": "nonparametric", "similarity": "exp(s)", "degree": 1, "ridge": "token"},
            {"kind": "interpolation", "kernel": "exp(-d2)", "ridge": 0.1},
        )
        found["optimizer"] = {"method": "nonparametric"}
        found |= {"bias": "l2", "window": self.one("all", 4), "features": "identity"}
        found["retention"] = {}
        for name in ("weights", "readout", "keys"):
            found.pop(name, None)
        if found["memory"]["kind"] == "nonparametric":
            found["weights"] = "similarity"
            if found["memory"].get("degree") is None and self.now(0.3):
                found |= {"keys": {"carry": "own"}, "window": "all"}
                found["optimizer"] = {"method": "nonparametric", "rate": "token"}

    def levels(self, found: Spec) -> None:
        """A tree of memories."""
        for name in ("window", "weights"):
            found.pop(name, None)
        found["bias"] = self.one("dot", "l2", "l2")
        found["optimizer"] = {"rate": found["optimizer"].get("rate", "token")}
        found["readout"] = {"levels": self.one("token", "learned", 1, {"expr": "a"}),
                            "max_levels": self.one(8, 10)}  # fmt: skip
        if self.now(0.2):
            self.whole(found)

    def named(self, found: Spec) -> Spec:
        """The spec with every coefficient that it names."""
        text = str({n: x for n, x in found.items() if n not in ("mnemic", "name")})
        gates = {
            "a": {"from": "input", "activation": "sigmoid"},
            "b": {"from": self.one("input", "parameter"), "activation": "sigmoid"},
            "c": {"from": "input", "per": "value", "activation": "sigmoid"},
        }
        if any(part in text for part in ("'a*", "*a'")):
            gates["a"] = {"from": "input", "per": "key", "activation": "sigmoid"}
        signs = {"a": ("'a*", "*a'", "'a/2'", "'a'", "sqrt(a)", "1 - a/8", "'a + "),
                 "b": ("a*b'",), "c": ("'c*", "- c/2")}  # fmt: skip
        used = {n: g for n, g in gates.items() if any(sign in text for sign in signs[n])}
        if "a*b'" in text:
            used["a"] = gates["a"]
        return {**found, "coefficients": used} if used else found
